CREATE STREAMING TABLE gold.cpu_usage_5m
COMMENT 'System 1''s windows, and the newest event of each: what freshness is measured by'
AS SELECT window.start AS window_start, window.end AS window_end, hostname, cpu,
          avg(usage) AS avg_usage, max(usage) AS max_usage, max(event_time) AS last_event
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '5 minutes'), hostname, cpu
