CREATE STREAMING TABLE gold.q1
COMMENT 'Every bid, its price in euros'
AS SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time, extra, partition, offset
FROM STREAM silver.bid
