CREATE STREAMING TABLE gold.final
TBLPROPERTIES ('headwater.emit' = 'final')
AS SELECT window.start AS window_start, hostname, cpu, avg(usage) AS avg_usage, max(usage) AS max_usage
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '5 minutes'), hostname, cpu
