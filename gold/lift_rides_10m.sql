CREATE MATERIALIZED VIEW gold.lift_rides_10m
COMMENT 'Rides per lift in windows of ten minutes, one every five (UTC), and how that compares with the window before'
TBLPROPERTIES ('headwater.keys' = 'window_start, resort_id, lift_id', 'headwater.trigger' = '2s')
AS SELECT now.window_start, now.window_end, now.resort_id, now.lift_id, now.rides,
          coalesce(earlier.rides, 0) AS rides_before,
          CASE WHEN now.rides > coalesce(earlier.rides, 0) THEN 'increasing'
               WHEN now.rides < coalesce(earlier.rides, 0) THEN 'decreasing'
               ELSE 'stable' END AS trend
FROM gold.lift_ride_counts now LEFT JOIN gold.lift_ride_counts earlier
  ON earlier.resort_id = now.resort_id AND earlier.lift_id = now.lift_id
 AND earlier.window_start = now.window_start - INTERVAL 5 MINUTES
