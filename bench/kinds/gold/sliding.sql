CREATE STREAMING TABLE gold.sliding
AS SELECT window.start AS window_start, window.end AS window_end, hostname, cpu, avg(usage) AS avg_usage, count(*) AS n
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '10 minutes', '5 minutes'), hostname, cpu
