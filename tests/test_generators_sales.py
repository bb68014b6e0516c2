"""The sales generator keeps its promises, and its oracle agrees with answers computed by hand."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.connectors.produce import Faults, Ledger, Record, load_generator, stepped

sales: Any = load_generator(Path(__file__).parents[1], "sales")
ALL = Faults(late=0.1, duplicate=0.1, malformed=0.1, future=0.1, invalid=0.1)


def made(count: int, faults: Faults = ALL, seed: int = 7) -> list[Record]:
    print(f"seed {seed}")
    return list(islice(sales.records(seed=seed, faults=faults, clock=stepped()), count))


def test_the_same_seed_gives_the_same_records_and_another_others() -> None:
    assert made(2_000) == made(2_000) == made(3_000)[:2_000] != made(2_000, seed=8)


def test_each_fault_has_its_share_and_is_what_it_says() -> None:
    records, ledger = made(50_000), Ledger()
    for record in records:
        ledger.add(record)
    for fault in ("late", "duplicate", "future"):
        assert 0.09 < ledger.faults[fault] / 50_000 < 0.11
    assert set(ledger.malformed) == set(sales.MALFORMED) and set(ledger.invalid) == set(sales.INVALID)
    values = Counter(record.value for record in records if record.fault in (None, "late", "future"))
    for record in records:
        if record.fault == "duplicate":
            assert record.value in values
        if record.fault is not None and record.fault.startswith("malformed/"):
            assert record.value is None or not decodes(record.value)
    assert max(values.values()) == 1


def decodes(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value.decode()), dict)
    except ValueError:
        return False


def test_the_oracle_agrees_with_a_count_by_hand() -> None:
    def record(id: str, item: str, quantity: int, amount: float, at: int, fault: str | None = None) -> Record:
        fields = {
            "purchase_id": id,
            "item_id": item,
            "quantity": quantity,
            "amount": amount,
            "purchase_time": at,
        }
        return Record("purchases", item.encode(), json.dumps(fields).encode(), 0, None, fault)

    hour = sales.HOUR_MS
    records = [
        record("1", "a", 1, 5.0, 10),
        record("1", "a", 1, 5.0, 10, "duplicate"),
        record("2", "b", 2, 7.0, hour + 1),
        record("3", "a", 1, 1.0, hour + 2, "late"),
        record("4", "a", 0, 9.0, 10, "invalid/no_quantity"),
        record("5", "a", 1, 9.0, 10, "malformed/array"),
    ]
    totals = sales.item_sales(records)
    assert totals == {(0, "a"): (2, 6.0, 2), (0, "b"): (2, 7.0, 1)}
    by_hour = sales.item_sales(records, hour)
    assert by_hour == {(0, "a"): (1, 5.0, 1), (hour, "b"): (2, 7.0, 1), (hour, "a"): (1, 1.0, 1)}
    assert sales.top(totals, 1) == {(0, 1): "b"}
    assert sales.top(by_hour, 2) == {(0, 1): "a", (hour, 1): "b", (hour, 2): "a"}
