-- The leaderboard, with each item's share of all sales in percent
SELECT place, item_id, round(amount, 2) AS euros, purchases,
       round(100 * amount / (SELECT sum(amount) FROM gold.item_sales), 1) AS share
FROM gold.top_sellers
ORDER BY place
