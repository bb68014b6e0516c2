CREATE STREAMING TABLE gold.best
AS SELECT hostname, cpu, max_by(struct(event_time, usage), usage, 10) AS best
FROM STREAM silver.cpu_metrics
GROUP BY hostname, cpu
