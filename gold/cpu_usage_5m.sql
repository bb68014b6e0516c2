CREATE STREAMING TABLE gold.cpu_usage_5m
COMMENT 'Average and maximum CPU usage in percent, per host and core, 5-minute tumbling windows (UTC)'
TBLPROPERTIES ('headwater.publish' = 'iot-avg-output', 'headwater.publish.on' = 'final')
AS SELECT window.start AS window_start, window.end AS window_end, hostname, cpu,
          avg(usage) AS avg_usage, max(usage) AS max_usage
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '5 minutes'), hostname, cpu
