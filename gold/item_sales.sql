CREATE STREAMING TABLE gold.item_sales
COMMENT 'What each item has sold so far: pieces, euros, purchases'
AS SELECT item_id, sum(quantity) AS quantity, sum(amount) AS amount, count(*) AS purchases
FROM STREAM silver.purchases
GROUP BY item_id
