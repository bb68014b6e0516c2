CREATE STREAMING TABLE gold.lift_ride_counts
COMMENT 'Rides per lift in windows of ten minutes, one every five (UTC)'
AS SELECT window.start AS window_start, window.end AS window_end, resort_id, lift_id, count(*) AS rides
FROM STREAM silver.lift_rides WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '10 minutes', '5 minutes'), resort_id, lift_id
