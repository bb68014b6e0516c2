CREATE MATERIALIZED VIEW silver.transactions
COMMENT 'Transactions with their account and customer as of their time (UTC): corrected when a change comes late'
TBLPROPERTIES ('headwater.keys' = 'transaction_id')
AS SELECT t.transaction_id, t.account_id, t.customer_id, t.type, t.amount, t.currency, t.transfer_id,
          t.merchant, t.category, t.event_time,
          a.kind AS account_kind, a.status AS account_status, c.name, c.segment, c.city,
          a.account_id IS NOT NULL AND c.customer_id IS NOT NULL AS _matched
FROM silver.transaction_events t
LEFT JOIN silver.accounts_history FOR SYSTEM_TIME AS OF t.event_time AS a ON t.account_id = a.account_id
LEFT JOIN silver.customers_history FOR SYSTEM_TIME AS OF t.event_time AS c ON t.customer_id = c.customer_id
