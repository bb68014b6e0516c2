-- Why records were quarantined: how many for each reason, first and last (Kafka's time, UTC)
SELECT reason, count(*) AS records, min(timestamp) AS first_at, max(timestamp) AS last_at
FROM quarantine.silver_cpu_metrics
GROUP BY reason
ORDER BY records DESC, reason
