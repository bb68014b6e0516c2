CREATE MATERIALIZED VIEW gold.q19
COMMENT 'The ten highest bids on each auction'
TBLPROPERTIES ('headwater.keys' = 'auction, place')
AS SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, partition, offset) AS place
      FROM silver.bid)
WHERE place <= 10
