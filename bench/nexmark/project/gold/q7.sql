CREATE MATERIALIZED VIEW gold.q7
COMMENT 'The highest bids of each ten seconds'
TBLPROPERTIES ('headwater.keys' = 'partition, offset')
AS SELECT b.auction, b.bidder, b.price, b.date_time, b.extra, b.partition, b.offset
FROM silver.bid b JOIN gold.q7_highest h
  ON b.price = h.price AND b.date_time >= h.window_start AND b.date_time < h.window_end
