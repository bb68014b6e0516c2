-- The items that have earned most in the last hour of orders, in euros
SELECT item, sum(orders) AS orders, round(sum(revenue), 2) AS revenue
FROM gold.revenue_1m
WHERE minute > (SELECT max(minute) FROM gold.revenue_1m) - INTERVAL 1 HOUR
GROUP BY item
ORDER BY revenue DESC
LIMIT 10
