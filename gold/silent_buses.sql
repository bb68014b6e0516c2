CREATE MATERIALIZED VIEW gold.silent_buses
COMMENT 'Buses that have not reported for two minutes, and where they were then; one that reports again is gone'
TBLPROPERTIES ('headwater.keys' = 'bus_id', 'headwater.trigger' = '2s')
AS SELECT bus_id, latest[0].reported_at AS reported_at, latest[0].route_id AS route_id,
          latest[0].lat AS lat, latest[0].lon AS lon
FROM gold.bus_reports CROSS JOIN reference.clock
WHERE latest[0].reported_at < now - INTERVAL 2 MINUTES
