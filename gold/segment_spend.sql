CREATE MATERIALIZED VIEW gold.segment_spend
COMMENT 'What customers of each segment have spent on each category, by the segment they were in then'
TBLPROPERTIES ('headwater.keys' = 'segment, category, currency')
AS SELECT segment, category, currency, sum(amount) AS spent, count(*) AS debits
FROM silver.transactions
WHERE type = 'DEBIT'
GROUP BY segment, category, currency
