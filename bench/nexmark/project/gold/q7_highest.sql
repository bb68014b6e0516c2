CREATE STREAMING TABLE gold.q7_highest
COMMENT 'The highest price of each ten seconds (UTC)'
AS SELECT window.start AS window_start, window.end AS window_end, max(price) AS price
FROM STREAM silver.bid WATERMARK date_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(date_time, '10 seconds')
