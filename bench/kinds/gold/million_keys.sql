CREATE STREAMING TABLE gold.million_keys
AS SELECT occurred_at DIV 100 % 1000000 AS key, sum(usage) AS total, count(*) AS n
FROM STREAM silver.cpu_metrics GROUP BY occurred_at DIV 100 % 1000000
