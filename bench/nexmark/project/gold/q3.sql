CREATE MATERIALIZED VIEW gold.q3
COMMENT 'Who sells what in three states'
TBLPROPERTIES ('headwater.keys' = 'id')
AS SELECT p.name, p.city, p.state, a.id
FROM silver.auction a JOIN silver.person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
