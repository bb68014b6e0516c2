-- The buses that will be at their next stop last, and those of their route that are silent
SELECT bus_id, p.route_id, next_stop, arrival, round(speed, 1) AS speed,
       (SELECT count(*) FROM gold.silent_buses s WHERE s.route_id = p.route_id) AS silent
FROM gold.bus_positions p
WHERE bus_id NOT IN (SELECT bus_id FROM gold.silent_buses)
ORDER BY arrival DESC, bus_id
LIMIT 10
