"""The oracle of the ledger's generator agrees with a count by hand; its records are those of their seed."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.connectors.produce import Faults, Record, load_generator, stepped

ledger: Any = load_generator(Path(__file__).parents[1], "ledger")
MINUTE = 60_000


def made(count: int, seed: int) -> list[Record]:
    faults = Faults(late=0.1, duplicate=0.1, malformed=0.1, invalid=0.1)
    return list(islice(ledger.records(seed=seed, faults=faults, clock=stepped()), count))


def test_the_same_seed_gives_the_same_records() -> None:
    assert made(2_000, 7) == made(3_000, 7)[:2_000] != made(2_000, 8)
    assert {record.fault for record in made(2_000, 7)} >= {"late", "duplicate", "invalid/negative"}


def test_changes_come_in_any_order_twice_and_delete() -> None:
    records = made(20_000, 7)
    for topic in (ledger.CUSTOMERS, ledger.ACCOUNTS):
        changes = [record for record in records if record.topic == topic]
        times = [record.timestamp_ms or 0 for record in changes]
        assert sorted(times) != times
        assert Counter(record.value is None for record in changes)[True] > 5
        assert max(Counter((r.key, r.timestamp_ms) for r in changes).values()) == 2
        assert all(
            record.value is None or json.loads(record.value)["changed_at"] == record.timestamp_ms
            for record in changes
        )
    taken = ledger.transactions(records)
    legs = Counter(each.transfer_id for each in taken if each.transfer_id)
    assert {*legs.values()} == {1, 2} and len({each.transaction_id for each in taken}) == len(taken)
    told = {record.key for record in records if record.topic == ledger.ACCOUNTS}
    untold = {each.account_id for each in taken} - {(key or b"").decode() for key in told}
    assert "a-unknown" in untold and len(untold) <= 4  # others are told later


def transaction(
    id: str, minute: float, kind: str, amount: float, fault: str | None = None, **more: Any
) -> Record:
    fields = {
        "transaction_id": id,
        "account_id": "a",
        "customer_id": "c",
        "type": kind,
        "amount": amount,
        "currency": "EUR",
        "transfer_id": None,
        "merchant": None,
        "transaction_time": int(minute * MINUTE),
        **more,
    }
    return Record(ledger.TRANSACTIONS, b"a", json.dumps(fields).encode(), 0, None, fault)


def account(minute: float, status: str | None) -> Record:
    at = int(minute * MINUTE)
    fields = {"account_id": "a", "customer_id": "c", "kind": "k", "status": status, "changed_at": at}
    value = json.dumps(fields).encode() if status else None
    return Record(ledger.ACCOUNTS, b"a", value, 0, at, None)


def test_the_oracle_agrees_with_a_count_by_hand() -> None:
    records = [
        transaction("1", 5, "CREDIT", 10.5),
        transaction("1", 5, "CREDIT", 10.5, "duplicate"),
        account(20, "late"),
        transaction("2", 61, "DEBIT", 0.25),
        account(8, "first"),
        account(62, None),
        transaction("3", 62, "DEBIT", 1.0),
        transaction("4", 90, "DEBIT", 7.0, "invalid/negative"),
        transaction("5", 30, "DEBIT", 2.0, "late"),
        account(80, "again"),
    ]
    assert ledger.balances(records) == {(0, "a"): (725, 4)}
    assert ledger.balances(records, 60 * MINUTE) == {(0, "a"): (850, 2), (60 * MINUTE, "a"): (-125, 2)}
    spend = ledger.customer_spend(records)
    assert len(spend) == 24
    assert (spend[0, 60 * MINUTE, "c"], spend[0, 120 * MINUTE, "c"]) == ((200, 1), (325, 3))
    versions = ledger.history(records, ledger.ACCOUNTS)["a"]
    assert [(each.begin // MINUTE, each.fields and each.fields["status"]) for each in versions] == [
        (8, "first"),
        (20, "late"),
        (62, None),
        (80, "again"),
    ]
    assert [(ledger.as_of(versions, minute * MINUTE) or {}).get("status") for minute in (7, 8, 61, 62)] == [
        None,
        "first",
        "late",
        None,
    ]
    # The account of minute 8 and the transaction of minute 30 came too late; 3 has waited for ten minutes.
    assert ledger.settled(records) == {
        "1": ledger.Settled(None, None, False),
        "2": ledger.Settled("k", "late", True),
        "3": ledger.Settled(None, None, False),
    }


def test_legs_of_transfers_meet_within_ten_minutes() -> None:
    def leg(id: str, minute: float, kind: str, transfer: str) -> Record:
        return transaction(id, minute, kind, 1.0, transfer_id=transfer)

    records = [
        leg("1", 0, "DEBIT", "x"),
        leg("2", 10, "CREDIT", "x"),
        leg("3", 10, "CREDIT", "y"),
        leg("4", 20.1, "DEBIT", "y"),
        leg("5", 21, "DEBIT", "z"),
        leg("6", 29, "DEBIT", "w"),
    ]
    assert sorted(ledger.transfers(records), key=str) == [
        ("w", ledger.Transfer("6", None)),
        ("x", ledger.Transfer("1", "2")),
        ("y", ledger.Transfer("4", None)),
        ("y", ledger.Transfer(None, "3")),
        ("z", ledger.Transfer("5", None)),
    ]
