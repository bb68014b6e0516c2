CREATE STREAMING TABLE silver.credit_legs
COMMENT 'Transactions that are the side of a transfer that comes to an account'
TBLPROPERTIES ('headwater.trigger' = '2s')
AS SELECT transfer_id, transaction_id, account_id, amount, currency, event_time
FROM STREAM silver.transaction_events
WHERE transfer_id IS NOT NULL AND type = 'CREDIT'
