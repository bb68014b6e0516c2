CREATE STREAMING TABLE gold.final_sessions
TBLPROPERTIES ('headwater.emit' = 'final')
AS SELECT session_window.start AS session_start, session_window.end AS session_end, hostname, cpu, count(*) AS readings
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY session_window(event_time, '5 seconds'), hostname, cpu
