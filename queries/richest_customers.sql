-- The ten customers with most on their accounts, by name
SELECT c.name, c.segment, c.city, sum(b.balance) AS balance, count(*) AS accounts
FROM gold.account_balances b
JOIN silver.accounts a ON a.account_id = b.account_id
JOIN silver.customers c ON c.customer_id = a.customer_id
GROUP BY c.customer_id, c.name, c.segment, c.city
ORDER BY balance DESC
LIMIT 10
