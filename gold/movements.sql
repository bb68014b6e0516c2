CREATE STREAMING TABLE gold.movements
COMMENT 'What went from accounts and what came to them: what each adds to the balance, in its currency';

CREATE FLOW from_debits AS INSERT INTO gold.movements BY NAME
SELECT transaction_id, account_id, -amount AS amount, currency, event_time FROM STREAM gold.debits;

CREATE FLOW from_credits AS INSERT INTO gold.movements BY NAME
SELECT transaction_id, account_id, amount, currency, event_time FROM STREAM gold.credits;
