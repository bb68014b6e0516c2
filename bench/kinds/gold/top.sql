CREATE MATERIALIZED VIEW gold.top TBLPROPERTIES ('headwater.keys' = 'place')
AS SELECT row_number() OVER (ORDER BY total DESC, key) AS place, key, total FROM gold.million_keys
ORDER BY total DESC, key LIMIT 100
