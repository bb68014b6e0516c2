-- The pages that were seen most in the last full minute, and how many of their views came too late to count
SELECT page, views, (SELECT count(*) FROM gold.page_views_1m_late late WHERE late.page = seen.page) AS late
FROM gold.page_views_1m seen
WHERE window_start = (SELECT max(window_start) - INTERVAL 1 MINUTE FROM gold.page_views_1m)
ORDER BY views DESC, page
LIMIT 10
