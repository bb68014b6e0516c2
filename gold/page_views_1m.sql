CREATE STREAMING TABLE gold.page_views_1m
COMMENT 'Views per page in windows of one minute, one every 30 seconds (UTC); a view may be a minute late'
TBLPROPERTIES ('headwater.allowed_lateness' = '1 minute')
AS SELECT window.start AS window_start, window.end AS window_end, page, count(*) AS views
FROM STREAM silver.page_views WATERMARK event_time DELAY OF INTERVAL 15 SECONDS
GROUP BY window(event_time, '1 minute', '30 seconds'), page
