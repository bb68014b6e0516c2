CREATE STREAMING TABLE gold.transfers
COMMENT 'One row for two legs of a transfer that lie at most ten minutes apart (_matched); one for each leg without such another, ten minutes of event time after it. Times in UTC'
TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.trigger' = '2s')
AS SELECT
    coalesce(d.transfer_id, c.transfer_id) AS transfer_id,
    coalesce(d.amount, c.amount) AS amount,
    d.transaction_id AS debit_id, d.account_id AS debit_account, d.event_time AS debited_at,
    c.transaction_id AS credit_id, c.account_id AS credit_account, c.event_time AS credited_at,
    d.transfer_id IS NOT NULL AND c.transfer_id IS NOT NULL AS _matched
FROM STREAM silver.debit_legs WATERMARK event_time DELAY OF INTERVAL 30 SECONDS AS d
FULL JOIN STREAM silver.credit_legs WATERMARK event_time DELAY OF INTERVAL 30 SECONDS AS c
ON d.transfer_id = c.transfer_id
AND c.event_time BETWEEN d.event_time - INTERVAL 10 MINUTES AND d.event_time + INTERVAL 10 MINUTES
