CREATE MATERIALIZED VIEW gold.q4
COMMENT 'What auctions of a category end at, on average'
TBLPROPERTIES ('headwater.keys' = 'category')
AS SELECT category, avg(final) AS final
FROM (SELECT a.id, a.category, max(b.price) AS final
      FROM silver.auction a JOIN silver.bid b
        ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
      GROUP BY a.id, a.category)
GROUP BY category
