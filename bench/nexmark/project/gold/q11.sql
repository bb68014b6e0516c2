CREATE STREAMING TABLE gold.q11
COMMENT 'Bids of each bidder in sessions: at most ten seconds apart (UTC)'
AS SELECT bidder, session_window.start AS starts, session_window.end AS ends, count(*) AS bids
FROM STREAM silver.bid WATERMARK date_time DELAY OF INTERVAL 10 SECONDS
GROUP BY session_window(date_time, '10 seconds'), bidder
