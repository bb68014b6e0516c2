CREATE STREAMING TABLE gold.item_sales_1h
COMMENT 'What each item has sold in each hour (UTC): pieces, euros, purchases'
AS SELECT window.start AS window_start, window.end AS window_end, item_id,
          sum(quantity) AS quantity, sum(amount) AS amount, count(*) AS purchases
FROM STREAM silver.purchases WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '1 hour'), item_id
