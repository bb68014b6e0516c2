CREATE MATERIALIZED VIEW gold.cpu_hot_5m
COMMENT 'Windows that are over whose average lies above the alert threshold of their host, by how many percent'
TBLPROPERTIES ('headwater.keys' = 'window_start, hostname, cpu')
AS SELECT window_start, window_end, usage.hostname, cpu, site, avg_usage, alert_threshold,
          avg_usage - alert_threshold AS above
FROM gold.cpu_usage_5m_final usage JOIN reference.hosts hosts ON usage.hostname = hosts.hostname
WHERE avg_usage > alert_threshold
