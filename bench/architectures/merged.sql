-- What a reader of the lambda architecture asks: the batch's windows that were over when it ran, the speed layer's since.
WITH horizon AS (
    SELECT time_bucket(INTERVAL 5 MINUTES, max(last_event) - INTERVAL 10 SECONDS) AS at FROM delta_scan('{folder}/gold')
)
SELECT * FROM delta_scan('{folder}/gold'), horizon WHERE window_start < horizon.at
UNION ALL
SELECT * FROM delta_scan('{folder}/speed'), horizon WHERE window_start >= horizon.at
