-- What customers of each segment spend, by the segment they were in when they spent it
SELECT coalesce(segment, 'unknown') AS segment, coalesce(category, 'unknown') AS category, currency, spent,
       round(spent / debits, 2) AS each
FROM gold.segment_spend
ORDER BY spent DESC
