CREATE MATERIALIZED VIEW gold.q8
COMMENT 'Who came and began to sell within the same ten seconds (UTC)'
TBLPROPERTIES ('headwater.keys' = 'id, window_start')
AS SELECT p.id, p.name, p.window_start
FROM (SELECT id, name, window.start AS window_start FROM silver.person
      GROUP BY id, name, window(date_time, '10 seconds')) p
JOIN (SELECT seller, window.start AS window_start FROM silver.auction
      GROUP BY seller, window(date_time, '10 seconds')) a
  ON p.id = a.seller AND p.window_start = a.window_start
