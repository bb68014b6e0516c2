CREATE MATERIALIZED VIEW gold.top_sellers
COMMENT 'The ten items that have sold for most so far, best first'
TBLPROPERTIES ('headwater.keys' = 'place')
AS SELECT row_number() OVER (ORDER BY amount DESC, item_id) AS place, item_id, amount, quantity, purchases
FROM gold.item_sales
ORDER BY amount DESC, item_id LIMIT 10
