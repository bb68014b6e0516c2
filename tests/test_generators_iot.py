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
from raising import raises_code

from headwater.connectors.produce import Faults, Ledger, Record, load_generator, stepped
from headwater.project import suite

ROOT = Path(__file__).parents[1]
iot: Any = load_generator(ROOT, "iot")

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


def test_each_gives_every_kind_of_bad_record_its_share() -> None:
    ledger = ledger_of(made(50_000, Faults(late=0.1, each=0.01)))
    assert set(ledger.malformed) == set(iot.MALFORMED)
    assert set(ledger.invalid) == set(iot.INVALID)
    counts = [*ledger.malformed.values(), *ledger.invalid.values(), ledger.faults["future"]]
    assert [n / 50_000 for n in counts] == pytest.approx([0.01] * len(counts), rel=0.15)
    assert ledger.faults["late"] / 50_000 == pytest.approx(0.1, rel=0.1)
    with raises_code("FAULTS_INVALID", match="kinds of bad records"):
        iot.records(seed=SEED, faults=Faults(each=0.05), clock=stepped())


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


def test_invalid_records_can_be_decoded_and_come_in_turn() -> None:
    records = made(10_000, Faults(invalid=0.1))
    counts = ledger_of(records).invalid
    assert set(counts) == set(iot.INVALID)
    assert max(counts.values()) - min(counts.values()) <= 1
    plain = [r for r in records if r.fault is None]
    assert len(plain) + sum(counts.values()) == len(list(iot.readings(records))) == 10_000
    assert all(is_reading(r.value) for r in plain)


def test_each_rule_of_the_suite_has_a_kind_that_fails_it() -> None:
    rules = {rule.id: rule for rule in suite.read(ROOT / "quality" / "silver.cpu_metrics.json").rules}
    later = {"future"}  # no rule of the suite: the engine's own
    failed = {rule for kind in iot.INVALID.values() for rule in kind.rules} - later
    assert failed == set(rules)
    for name, kind in iot.INVALID.items():
        known = [rule for rule in kind.rules if rule not in later]
        assert known == [rule for rule in rules if rule in known], f"{name}: not in the suite's order"
        assert kind.kept == all(rule in rules and rules[rule].action == "warn" for rule in kind.rules)


@pytest.mark.parametrize("usage", [b"0.00", b"50.00", b"100.00"])
@pytest.mark.parametrize("now", [0, START_MS, 4_000_000_000_000])
def test_an_invalid_value_is_wrong_whatever_it_is_made_of(usage: bytes, now: int) -> None:
    row = {}
    for name, kind in iot.INVALID.items():
        record = Record("t", None, kind.value(b"doc", b"cpu1", usage, now), fault=f"invalid/{name}")
        (row[name],) = iot.readings([record])
    good = (None, "doc", "cpu1", float(usage), now)
    assert row["no_hostname"] == (None, *good[2:])
    assert row["cpu_name"] == ("doc", "cpu0", *good[3:])
    assert row["no_cpu"] == ("doc", None, *good[3:])
    assert row["usage_below"].usage < 0 and row["usage_above"].usage > 100
    assert row["no_usage"] == ("doc", "cpu1", None, now)
    assert row["before_1970"].occurred_at < 0
    assert row["unknown_host"].hostname not in iot.HOSTS
    assert datetime.fromtimestamp(row["year_2099"].occurred_at / 1000, UTC).year == 2099


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


def bad(kind: str, hostname: str | None, cpu: str | None, usage: float | None, occurred_at: int) -> Record:
    row = {"hostname": hostname, "cpu": cpu, "usage": usage, "occurred_at": occurred_at}
    return Record("iot-data-input", b"doc", json.dumps(row).encode(), 0, None, f"invalid/{kind}")


INVALID_HAND = [
    *HAND,
    bad("no_hostname", None, "cpu1", 95.0, START_MS),
    bad("cpu_name", "doc", "cpu0", 50.0, START_MS),
    bad("usage_above", "doc", "cpu1", 150.0, START_MS),
    bad("before_1970", "doc", "cpu1", 99.0, -1),
    bad("no_usage", "doc", "cpu1", None, START_MS),
    bad("no_usage", "doc", "cpu3", None, START_MS),
    bad("unknown_host", "doc-new", "cpu1", 91.0, START_MS),
]


def test_what_expectations_hold_back_is_in_neither_silver_nor_gold() -> None:
    silver = list(iot.silver(INVALID_HAND))
    assert silver[:-3] == list(iot.readings(HAND))
    assert silver[-3:] == [
        ("doc", "cpu1", None, START_MS),
        ("doc", "cpu3", None, START_MS),
        ("doc-new", "cpu1", 91.0, START_MS),
    ]
    assert iot.cpu_usage_5m(INVALID_HAND) == {
        **iot.cpu_usage_5m(HAND),
        (START_MS, "doc", "cpu3"): (None, None, 0),
        (START_MS, "doc-new", "cpu1"): (91.0, 91.0, 1),
    }


def test_alerts_do_not_wait_for_the_expectations() -> None:
    assert iot.alerts(INVALID_HAND)[len(iot.alerts(HAND)) :] == [
        (None, "2026-01-01 00:00:00.000", "cpu1", 95.0),
        ("doc", "2026-01-01 00:00:00.000", "cpu1", 150.0),
        ("doc", None, "cpu1", 99.0),
        ("doc-new", "2026-01-01 00:00:00.000", "cpu1", 91.0),
    ]


def test_the_counts_of_each_rule_follow_from_the_ledger() -> None:
    faults = ledger_of(INVALID_HAND).faults
    assert iot.failed(faults) == {
        "malformed": 1,
        "values_to_not_be_null(hostname)": 1,
        "values_to_not_be_null(site)": 2,
        "values_to_match_regex(cpu)": 1,
        "values_to_be_between(usage)": 1,
        "values_to_not_be_null(event_time)": 1,
        "values_to_not_be_null(usage)": 2,
    }
    assert iot.held(faults) == {
        "malformed": 1,
        "values_to_not_be_null(hostname)": 1,
        "values_to_not_be_null(site)": 1,
        "values_to_match_regex(cpu)": 1,
        "values_to_be_between(usage)": 1,
        "values_to_not_be_null(event_time)": 1,
    }
