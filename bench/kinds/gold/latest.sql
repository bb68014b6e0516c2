CREATE STREAMING TABLE gold.latest
AS SELECT hostname, cpu, max(event_time) AS event_time, max_by(usage, event_time) AS usage
FROM STREAM silver.cpu_metrics GROUP BY hostname, cpu
