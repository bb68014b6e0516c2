CREATE STREAMING TABLE gold.interval_join
COMMENT 'Each bid of the first ten seconds of its auction, with it'
AS SELECT b.auction, b.bidder, b.price, b.date_time, a.item_name, a.date_time AS auction_date_time
FROM STREAM silver.bid b JOIN STREAM silver.auction a
ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL 10 SECONDS
