-- One host's CPU usage in percent per 5-minute window (UTC), newest first; needs --param hostname=NAME
SELECT window_start, cpu, round(avg_usage, 1) AS avg_usage, max_usage
FROM gold.cpu_usage_5m
WHERE hostname = $hostname
ORDER BY window_start DESC, cpu
LIMIT 20
