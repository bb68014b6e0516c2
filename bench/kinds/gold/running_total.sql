CREATE STREAMING TABLE gold.running_total
AS SELECT hostname, cpu, sum(usage) AS total, count(*) AS n FROM STREAM silver.cpu_metrics GROUP BY hostname, cpu
