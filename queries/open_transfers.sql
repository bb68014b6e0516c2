-- Transfers of which one side is missing, the newest first
SELECT transfer_id, amount, coalesce(debit_account, credit_account) AS account,
       coalesce(debited_at, credited_at) AS booked_at,
       CASE WHEN credit_id IS NULL THEN 'went, and has not come' ELSE 'came, and has not gone' END AS missing
FROM gold.transfers
WHERE NOT _matched
ORDER BY booked_at DESC, transfer_id
LIMIT 20
