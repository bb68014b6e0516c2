CREATE MATERIALIZED VIEW gold.q6
COMMENT 'What a seller''s last ten auctions ended at, on average, at each auction'
TBLPROPERTIES ('headwater.keys' = 'id')
AS SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY date_time, id
                                       ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS final
FROM (SELECT a.id, a.seller, a.date_time, max(b.price) AS final
      FROM silver.auction a JOIN silver.bid b
        ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
      GROUP BY a.id, a.seller, a.date_time)
