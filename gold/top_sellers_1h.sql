CREATE MATERIALIZED VIEW gold.top_sellers_1h
COMMENT 'The three items that have sold for most in each hour (UTC), best first'
TBLPROPERTIES ('headwater.keys' = 'window_start, place', 'headwater.trigger' = '2s')
AS SELECT window_start, place, item_id, amount, quantity
FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY amount DESC, item_id) AS place
      FROM gold.item_sales_1h)
WHERE place <= 3
