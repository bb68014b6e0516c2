CREATE MATERIALIZED VIEW gold.q20
COMMENT 'Each bid with its auction, of one category'
TBLPROPERTIES ('headwater.keys' = 'partition, offset')
AS SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.partition, b.offset,
          a.item_name, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller
FROM silver.bid b JOIN silver.auction a ON b.auction = a.id
WHERE a.category = 10
