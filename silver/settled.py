"""Transactions that go on once, with their account as it is known then: what leaves can't be corrected."""

from collections.abc import Iterator
from datetime import timedelta

import headwater as hw

LIMIT = timedelta(minutes=10)
TAKEN = (
    "transaction_id",
    "customer_id",
    "type",
    "amount",
    "currency",
    "transfer_id",
    "merchant",
    "event_time",
)
FIELDS = (
    "transaction_id STRING, customer_id STRING, type STRING, amount DECIMAL(18, 2), currency STRING, "
    "transfer_id STRING, merchant STRING, event_time TIMESTAMP"
)


@hw.process(
    source={"account": "silver.accounts_changes", "transaction": "silver.transaction_events"},
    keys=["account_id"],
    event_time={"account": "_sequence", "transaction": "event_time"},
    delay="30 seconds",
    trigger="2s",
    state=f"account STRUCT<kind STRING, status STRING>, waiting ARRAY<STRUCT<{FIELDS}>>",
    columns=f"account_id STRING, {FIELDS}, account_kind STRING, account_status STRING, _matched BOOLEAN",
)
def settled_transactions(row: hw.Row | None, account: hw.Keyed, source: str | None) -> Iterator[hw.Row]:
    """One row for each transaction that is on time: with its account (`_matched`), as soon as that is known,
    or without one, ten minutes (of the transactions' time) after it."""
    state = account.state or {"account": None, "waiting": []}
    known, waiting = state["account"], list(state["waiting"] or ())
    if row is None:  # the limit of the first that waits
        over = [each for each in waiting if each["event_time"] + LIMIT <= account.now]
        yield from (_row(account, each, None) for each in over)
        waiting = waiting[len(over) :]
    elif source == "account":
        known = None if row["_deleted"] else {"kind": row["kind"], "status": row["status"]}
        if known is not None:
            yield from (_row(account, each, known) for each in waiting)
            waiting = []
    elif known is not None:
        yield _row(account, row, known)
    else:
        waiting.append({name: row[name] for name in TAKEN})
    account.forget()
    if known is not None or waiting:
        account.state = {"account": known, "waiting": waiting}
    if waiting:
        account.wake(waiting[0]["event_time"] + LIMIT)


def _row(account: hw.Keyed, transaction: hw.Row, known: hw.Row | None) -> hw.Row:
    of_account = known or {"kind": None, "status": None}
    return {
        **account.key,
        **{name: transaction[name] for name in TAKEN},
        "account_kind": of_account["kind"],
        "account_status": of_account["status"],
        "_matched": known is not None,
    }
