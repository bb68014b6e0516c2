CREATE STREAMING TABLE gold.customer_spend
COMMENT 'What each customer has spent of a day so far, by every hour (UTC), in the currency'
TBLPROPERTIES ('headwater.postgres' = 'warehouse.ledger.customer_spend', 'headwater.trigger' = '2s')
AS SELECT window.start AS day, window.end AS until, customer_id, currency, sum(amount) AS spent, count(*) AS debits
FROM (SELECT *, cumulative_windows(event_time, INTERVAL 1 DAY, INTERVAL 1 HOUR) AS windows
      FROM STREAM silver.transaction_events WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
      WHERE type = 'DEBIT')
LATERAL VIEW explode(windows) AS window
GROUP BY window, customer_id, currency
