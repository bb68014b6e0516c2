CREATE MATERIALIZED VIEW gold.q18
COMMENT 'The last bid of each bidder on each auction'
TBLPROPERTIES ('headwater.keys' = 'bidder, auction')
AS SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction
                                   ORDER BY date_time DESC, partition, offset DESC) AS place
      FROM silver.bid)
WHERE place = 1
