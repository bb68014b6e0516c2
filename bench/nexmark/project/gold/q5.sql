CREATE MATERIALIZED VIEW gold.q5
COMMENT 'The auctions with the most bids of each window'
TBLPROPERTIES ('headwater.keys' = 'window_start, auction')
AS SELECT window_start, window_end, auction, bids
FROM (SELECT *, rank() OVER (PARTITION BY window_start ORDER BY bids DESC) AS place FROM gold.q5_counts)
WHERE place = 1
