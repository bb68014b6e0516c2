CREATE MATERIALIZED VIEW gold.q16
COMMENT 'The same for each channel, and the last minute in which somebody bid (UTC)'
TBLPROPERTIES ('headwater.keys' = 'channel, day')
AS SELECT channel, date(date_time) AS day, max(date_format(date_time, 'HH:mm')) AS minute,
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
GROUP BY channel, date(date_time)
