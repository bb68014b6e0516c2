CREATE STREAMING TABLE gold.web_sessions
COMMENT 'System 7''s visits, without the sink that they have there'
TBLPROPERTIES ('headwater.emit' = 'final')
AS SELECT user_id, session_window.start AS session_start, session_window.end AS session_end,
          count(*) AS views, min_by(page, event_time) AS first_page, max_by(page, event_time) AS last_page
FROM STREAM silver.page_views WATERMARK event_time DELAY OF INTERVAL 15 SECONDS
GROUP BY session_window(event_time, '5 minutes'), user_id
