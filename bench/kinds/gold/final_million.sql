CREATE STREAMING TABLE gold.final_million
TBLPROPERTIES ('headwater.emit' = 'final')
AS SELECT window.start AS window_start, occurred_at DIV 100 % 1000000 AS key, count(*) AS n, sum(usage) AS total
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '30 days'), occurred_at DIV 100 % 1000000
