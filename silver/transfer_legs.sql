CREATE STREAMING TABLE silver.transfer_legs
COMMENT 'Transactions that are one side of a transfer between two accounts'
TBLPROPERTIES ('headwater.trigger' = '2s')
AS SELECT transfer_id, transaction_id, account_id, type, amount, currency, event_time
FROM STREAM silver.transaction_events
WHERE transfer_id IS NOT NULL
