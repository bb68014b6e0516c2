CREATE STREAMING TABLE gold.q5_counts
COMMENT 'Bids on each auction in windows of ten seconds, one every two (UTC)'
AS SELECT window.start AS window_start, window.end AS window_end, auction, count(*) AS bids
FROM STREAM silver.bid WATERMARK date_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(date_time, '10 seconds', '2 seconds'), auction
