CREATE STREAMING TABLE gold.revenue_1m
COMMENT 'Orders and euros of each item, minute by minute of event time (UTC)'
AS SELECT window.start AS minute, item, count(*) AS orders, sum(amount) AS revenue
FROM STREAM silver.orders WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '1 minute'), item
