CREATE MATERIALIZED VIEW gold.q9
COMMENT 'The winning bid of each auction'
TBLPROPERTIES ('headwater.keys' = 'id')
AS SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category,
          bidder, price, bid_date_time
FROM (SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller,
             a.category, b.bidder, b.price, b.date_time AS bid_date_time,
             row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.partition, b.offset)
               AS place
      FROM silver.auction a JOIN silver.bid b
        ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires)
WHERE place = 1
