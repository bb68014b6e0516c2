"""Transfers: what went from one account and came to another."""

from collections.abc import Iterator
from datetime import timedelta

import headwater as hw

LIMIT = timedelta(minutes=10)
LEG = ("transaction_id", "account_id", "event_time")


@hw.process(
    source="silver.transfer_legs",
    keys=["transfer_id"],
    event_time="event_time",
    delay="30 seconds",
    trigger="2s",
    state="type STRING, amount DECIMAL(18, 2), transaction_id STRING, account_id STRING, "
    "event_time TIMESTAMP",
    columns="transfer_id STRING, amount DECIMAL(18, 2), debit_id STRING, debit_account STRING, "
    "debited_at TIMESTAMP, credit_id STRING, credit_account STRING, credited_at TIMESTAMP, _matched BOOLEAN",
)
def transfers(leg: hw.Row | None, transfer: hw.Keyed) -> Iterator[hw.Row]:
    """One row for two legs of a transfer that lie at most ten minutes apart (`_matched`; times in UTC); one
    for each leg without such another, ten minutes after it."""
    first = transfer.state
    if leg is not None and first is not None and leg["type"] != first["type"]:
        transfer.forget()
        yield _row(transfer, leg, first)
        return
    if first is not None:
        yield _row(transfer, first)
    transfer.forget()
    if leg is not None:
        transfer.state = {name: leg[name] for name in ("type", "amount", *LEG)}
        transfer.wake(transfer.now + LIMIT)


def _row(transfer: hw.Keyed, *legs: hw.Row) -> hw.Row:
    found = {leg["type"]: leg for leg in legs}
    debit, credit = (found.get(kind, dict.fromkeys(LEG)) for kind in ("DEBIT", "CREDIT"))
    return {
        **transfer.key,
        "amount": legs[0]["amount"],
        **dict(zip(("debit_id", "debit_account", "debited_at"), (debit[name] for name in LEG), strict=True)),
        **dict(
            zip(("credit_id", "credit_account", "credited_at"), (credit[name] for name in LEG), strict=True)
        ),
        "_matched": len(legs) == 2,
    }
