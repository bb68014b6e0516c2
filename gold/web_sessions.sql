CREATE STREAMING TABLE gold.web_sessions
COMMENT 'Visits: views of one user at most five minutes apart (UTC), each appended once, when it is over'
TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.postgres' = 'warehouse.web.sessions')
AS SELECT user_id, session_window.start AS session_start, session_window.end AS session_end,
          count(*) AS views, min_by(page, event_time) AS first_page, max_by(page, event_time) AS last_page
FROM STREAM silver.page_views WATERMARK event_time DELAY OF INTERVAL 15 SECONDS
GROUP BY session_window(event_time, '5 minutes'), user_id
