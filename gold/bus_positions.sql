CREATE MATERIALIZED VIEW gold.bus_positions
COMMENT 'Where each bus was last (UTC, degrees), how fast it goes (km/h), and when it will be at its next stop'
TBLPROPERTIES ('headwater.keys' = 'bus_id', 'headwater.trigger' = '30s')
AS WITH moves AS (
  SELECT bus_id, get(latest, 0) AS now, get(latest, 1) AS before FROM gold.bus_reports
), buses AS (  -- lengths are in metres, on a plane: right to a thousandth within a town
  SELECT bus_id, now.*, 3600 / nullif(unix_millis(now.reported_at) - unix_millis(before.reported_at), 0)
         * sqrt(pow((now.lat - before.lat) * 111320, 2)
                + pow((now.lon - before.lon) * 111320 * cos(radians(now.lat)), 2)) AS speed
  FROM moves
), legs AS (  -- from each stop to the next, from the last to the first
  SELECT route_id, place, lat AS from_lat, lon AS from_lon,
         coalesce(lead(struct(stop, lat, lon)) OVER (PARTITION BY route_id ORDER BY place),
                  first_value(struct(stop, lat, lon)) OVER (PARTITION BY route_id ORDER BY place)) AS next
  FROM reference.stops
), ahead AS (  -- a bus is on the leg that it makes the least longer
  SELECT buses.*, next.stop AS next_stop, place,
         sqrt(pow((lat - from_lat) * 111320, 2) + pow((lon - from_lon) * 111320 * cos(radians(lat)), 2)) AS driven,
         sqrt(pow((lat - next.lat) * 111320, 2) + pow((lon - next.lon) * 111320 * cos(radians(lat)), 2)) AS left,
         sqrt(pow((from_lat - next.lat) * 111320, 2)
              + pow((from_lon - next.lon) * 111320 * cos(radians(from_lat)), 2)) AS length
  FROM buses JOIN legs ON legs.route_id = buses.route_id
)
SELECT bus_id, route_id, lat, lon, reported_at, speed, next_stop,
       timestamp_millis(CAST(unix_millis(reported_at) + 3600 * left / nullif(speed, 0) AS BIGINT)) AS arrival
FROM (SELECT *, row_number() OVER (PARTITION BY bus_id ORDER BY driven + left - length, place) AS best FROM ahead)
WHERE best = 1
