-- The ten busiest windows of ten minutes, and whether more people were coming
SELECT window_start, resort_id, lift_id, rides, trend
FROM gold.lift_rides_10m
ORDER BY rides DESC, window_start, lift_id
LIMIT 10
