"""The iot generator keeps its promises, and its oracle agrees with answers computed by hand."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.produce import Faults, Ledger, Record, load_generator, stepped

iot: Any = load_generator(Path(__file__).parents[1], "iot")

SEED = 20_260_107
ALL_FAULTS = Faults(late=0.1, duplicate=0.05, malformed=0.2, future=0.02)
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STEP_MS = 100


@pytest.fixture(autouse=True)
def _print_seed() -> None:
    print(f"seed {SEED}")


def made(count: int, faults: Faults = ALL_FAULTS, *, seed: int = SEED) -> list[Record]:
    return list(islice(iot.records(seed=seed, faults=faults, clock=stepped()), count))


def ledger_of(records: list[Record]) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    return ledger


def reading(hostname: str, cpu: str, usage: float, occurred_at: int, fault: str | None = None) -> Record:
    row = {"hostname": hostname, "cpu": cpu, "usage": usage, "occurred_at": occurred_at}
    return Record("iot-data-input", hostname.encode(), json.dumps(row).encode(), 0, None, fault)


def test_same_seed_gives_the_same_bytes_and_a_longer_run_only_adds() -> None:
    assert made(5_000) == made(5_000)
    assert made(5_000) == made(6_000)[:5_000]
    assert made(5_000) != made(5_000, seed=SEED + 1)


def test_the_bytes_are_the_same_everywhere() -> None:
    digest = sha256(repr([r[:4] for r in made(10_000, seed=7)]).encode()).hexdigest()
    assert (
        digest == "6f647ef3ff391f21bc676b8b362b361a045ca59fbca9bfcd58dbb013e31f26ca"
    )  # changes only when the generator is meant to


def test_start_and_step_decide_the_event_times_alone() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    later = islice(iot.records(seed=SEED, faults=ALL_FAULTS, clock=stepped(start)), 2_000)
    assert [(r.key, r.fault) for r in later] == [(r.key, r.fault) for r in made(2_000)]


def test_an_ordinary_reading_is_plausible_and_at_most_two_seconds_old() -> None:
    records = made(50_000, Faults())
    hosts = {"doc", "dopey", "happy", "sneezy", "grumpy", "bashful"}
    usages = []
    for n, (record, row) in enumerate(zip(records, iot.readings(records), strict=True)):
        age = START_MS + n * STEP_MS - row.occurred_at
        assert 0 <= age < 2_000
        assert 0 <= row.usage <= 100
        assert record.key == row.hostname.encode()
        usages.append(row.usage)
    assert {r.hostname for r in iot.readings(records)} == hosts
    assert {r.cpu for r in iot.readings(records)} == {"cpu1", "cpu2", "cpu3", "cpu4", "cpu5"}
    assert 0.04 < sum(u > 90 for u in usages) / len(usages) < 0.06
    times = [r.occurred_at for r in iot.readings(records)]
    assert 0.02 < sum(b < a for a, b in pairwise(times)) / len(times) < 0.2


def test_some_window_of_some_core_is_hot_on_average() -> None:
    windows = iot.cpu_usage_5m(made(50_000, Faults()))
    assert 0 < sum(u.avg > 90 for u in windows.values()) < len(windows) / 10


def test_a_host_stays_in_its_partition_and_every_partition_is_used() -> None:
    placed = {(r.key, r.partition) for r in made(5_000)}
    assert len(placed) == 6
    assert {partition for _, partition in placed} == set(range(iot.topics[0].partitions))


def test_fractions_hold_and_the_ledger_counts_every_record() -> None:
    records = made(50_000)
    ledger = ledger_of(records)
    assert ledger.produced == 50_000
    for name in ("late", "duplicate", "future"):
        assert ledger.faults[name] / 50_000 == pytest.approx(getattr(ALL_FAULTS, name), rel=0.1)
    assert sum(ledger.malformed.values()) / 50_000 == pytest.approx(ALL_FAULTS.malformed, rel=0.1)
    assert ledger.well_formed == len(list(iot.readings(records)))
    assert ledger.faults == Counter(r.fault for r in records if r.fault is not None)


def test_malformed_kinds_come_in_turn() -> None:
    counts = ledger_of(made(10_000)).malformed
    assert set(counts) == set(iot.MALFORMED)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_late_is_behind_the_delay_of_its_own_partition_and_future_is_days_ahead() -> None:
    seen: dict[int | None, int] = {}
    records = made(50_000, Faults(late=0.1))
    checked = 0
    for record, row in zip(records, iot.readings(records), strict=True):
        if record.fault == "late":
            if record.partition in seen:
                assert 10_000 < seen[record.partition] - row.occurred_at < 1_800_000
                checked += 1
        else:
            seen[record.partition] = max(seen.get(record.partition, 0), row.occurred_at)
    assert checked > 4_000
    ahead = made(5_000, Faults(future=0.1))
    for n, (record, row) in enumerate(zip(ahead, iot.readings(ahead), strict=True)):
        days = (row.occurred_at - START_MS - n * STEP_MS) / 86_400_000
        assert 1 <= days <= 7 if record.fault == "future" else days <= 0


def test_a_duplicate_repeats_a_record_sent_shortly_before() -> None:
    records = made(20_000)
    for n, record in enumerate(records):
        if record.fault == "duplicate":
            assert record[:5] in [r[:5] for r in records[max(0, n - 500) : n]]


def test_a_share_of_one_is_all_and_nothing_else() -> None:
    assert ledger_of(made(100, Faults(malformed=1))).well_formed == 0
    assert ledger_of(made(100, Faults(late=1))).faults["late"] == 100
    assert ledger_of(made(100, Faults(duplicate=1))).faults["duplicate"] == 99  # the first has none to repeat


def test_every_malformed_value_is_refused_by_a_strict_reader() -> None:
    for record in made(2_000, Faults(malformed=1)):
        assert not is_reading(record.value), record
    assert all(is_reading(r.value) for r in made(2_000, Faults(late=0.2, duplicate=0.2, future=0.2)))


def is_reading(value: bytes | None) -> bool:
    """A second opinion, written apart from the generator."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("duplicate field")
        return dict(pairs)

    def refuse(literal: str) -> Any:
        raise ValueError(literal)

    try:
        row = json.loads((value or b"").decode(), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(row, dict)
        and isinstance(row.get("hostname"), str)
        and isinstance(row.get("cpu"), str)
        and isinstance(row.get("usage"), float | int)
        and isinstance(row.get("occurred_at"), int)
        and abs(row["occurred_at"]) < 2**63
    )


HAND = [
    reading("doc", "cpu1", 10.0, START_MS),
    reading("doc", "cpu1", 91.0, START_MS + 299_999),
    reading("doc", "cpu1", 90.0, START_MS + 300_000),  # the next window; not above 90
    Record("iot-data-input", b"doc", b"{", 0, None, "malformed/truncated"),
    reading("doc", "cpu2", 50.0, START_MS + 1),
    reading("doc", "cpu1", 91.0, START_MS + 299_999, "duplicate"),  # counts again
    reading("doc", "cpu1", 0.0, START_MS - 1, "late"),
    reading("grumpy", "cpu1", 95.5, START_MS + 86_400_000 + 7, "future"),
]


def test_the_averages_of_a_tiny_example() -> None:
    assert iot.cpu_usage_5m(HAND) == {
        (START_MS, "doc", "cpu1"): (64.0, 91.0, 3),
        (START_MS + 300_000, "doc", "cpu1"): (90.0, 90.0, 1),
        (START_MS, "doc", "cpu2"): (50.0, 50.0, 1),
        (START_MS - 300_000, "doc", "cpu1"): (0.0, 0.0, 1),
        (START_MS + 86_400_000, "grumpy", "cpu1"): (95.5, 95.5, 1),
    }


def test_the_alerts_of_a_tiny_example() -> None:
    assert iot.alerts(HAND) == [
        ("doc", "2026-01-01 00:04:59.999", "cpu1", 91.0),
        ("doc", "2026-01-01 00:04:59.999", "cpu1", 91.0),
        ("grumpy", "2026-01-02 00:00:00.007", "cpu1", 95.5),
    ]
    assert len(iot.alerts(HAND, threshold=89.9)) == 4
