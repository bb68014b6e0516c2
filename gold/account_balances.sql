CREATE STREAMING TABLE gold.account_balances
COMMENT 'The balance of each account: all that came to it less all that went, in its currency'
AS SELECT account_id, currency, sum(CASE WHEN type = 'CREDIT' THEN amount ELSE -amount END) AS balance,
          count(*) AS transactions
FROM STREAM silver.transaction_events
GROUP BY account_id, currency
