CREATE STREAMING TABLE gold.q2
COMMENT 'The bids on each 123rd auction'
AS SELECT auction, price, partition, offset FROM STREAM silver.bid WHERE auction % 123 = 0
