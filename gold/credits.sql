CREATE STREAMING TABLE gold.credits
COMMENT 'What came to accounts, each transaction once, with its account as it was known then'
TBLPROPERTIES ('headwater.publish' = 'transactions.credits', 'headwater.publish.partitions' = '5')
AS SELECT transaction_id, account_id, customer_id, amount, currency, merchant, event_time, account_kind,
          account_status, _matched
FROM STREAM silver.settled_transactions
WHERE type = 'CREDIT'
