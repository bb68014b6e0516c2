CREATE MATERIALIZED VIEW gold.q15
COMMENT 'What was bid on each day (UTC), by how many on how many auctions, in three ranges of the price'
TBLPROPERTIES ('headwater.keys' = 'day')
AS SELECT date(date_time) AS day,
          count(*) AS bids,
          count(*) FILTER (WHERE price < 10000) AS low,
          count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
          count(*) FILTER (WHERE price >= 1000000) AS high,
          count(DISTINCT bidder) AS bidders,
          count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
          count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
          count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
          count(DISTINCT auction) AS auctions,
          count(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
          count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
          count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM silver.bid
GROUP BY date(date_time)
