CREATE STREAMING TABLE gold.q0
COMMENT 'Every bid as it is'
AS SELECT auction, bidder, price, date_time, extra, partition, offset FROM STREAM silver.bid
