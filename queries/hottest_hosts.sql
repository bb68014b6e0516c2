-- The ten busiest hosts in the newest hour of readings: average and highest CPU usage in percent
SELECT hostname, site, round(avg(usage), 1) AS avg_usage, max(usage) AS max_usage, count(*) AS readings
FROM silver.cpu_metrics
WHERE event_time > (SELECT max(event_time) FROM silver.cpu_metrics) - INTERVAL 1 HOUR
GROUP BY hostname, site
ORDER BY avg_usage DESC, hostname
LIMIT 10
