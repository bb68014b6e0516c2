CREATE STREAMING TABLE gold.account_balances_1h
COMMENT 'By how much each hour (UTC) has changed the balance of each account, in its currency'
TBLPROPERTIES ('headwater.trigger' = '2s')
AS SELECT window.start AS window_start, window.end AS window_end, account_id, currency,
          sum(CASE WHEN type = 'CREDIT' THEN amount ELSE -amount END) AS change, count(*) AS transactions
FROM STREAM silver.transaction_events WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '1 hour'), account_id, currency
