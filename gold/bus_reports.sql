CREATE STREAMING TABLE gold.bus_reports
COMMENT 'The last two reports of each bus, the newer first, and how many it has sent'
AS SELECT bus_id, count(*) AS reports,
          max_by(struct(event_time AS reported_at, route_id, lat, lon), event_time, 2) AS latest
FROM STREAM silver.bus_positions
GROUP BY bus_id
