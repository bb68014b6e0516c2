CREATE STREAMING TABLE gold.page_views_1m
COMMENT 'System 7''s windows, and the newest view of each: what freshness is measured by'
TBLPROPERTIES ('headwater.allowed_lateness' = '1 minute')
AS SELECT window.start AS window_start, window.end AS window_end, page, count(*) AS views,
          max(event_time) AS last_event
FROM STREAM silver.page_views WATERMARK event_time DELAY OF INTERVAL 15 SECONDS
GROUP BY window(event_time, '1 minute', '30 seconds'), page
