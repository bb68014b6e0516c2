"""Expectations act on the stream: what fails is held back with its reasons, once, whatever is killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness import BRONZE, GOLD, QUARANTINE, SILVER, Event, Project, once_each
from oracles import assert_lake_equals_oracle
from pyspark.sql import SparkSession

from headwater.connectors.kafka import tail
from headwater.connectors.produce import Faults

GOOD = {"hostname": "doc", "cpu": "cpu1", "usage": 50.0, "occurred_at": 1_700_000_000_000}
RULES = {
    "values_to_not_be_null(hostname)": {"hostname": None},
    "values_to_match_regex(cpu)": {"cpu": "gpu1"},
    "values_to_be_between(usage)": {"usage": 100.5},
    "values_to_not_be_null(event_time)": {"occurred_at": -1},
    "values_to_not_be_null(usage)": {"usage": None},  # a warning: the row stays
}


SITE = "values_to_not_be_null(site)"  # a row without a host has no site either: a warning


def send(project: Project, values: list[bytes]) -> None:
    producer = Producer(project.client())
    for at, value in enumerate(values):
        producer.produce(project.topic("iot-data-input"), value, partition=at % 4)
    assert producer.flush(30) == 0


def values(each: int) -> list[bytes]:
    """`each` rows that fail each rule, as many malformed ones, and ten times as many good ones."""
    bad = [json.dumps({**GOOD, **wrong}).encode() for wrong in RULES.values()] * each
    return [json.dumps(GOOD).encode()] * (10 * each) + bad + [b"broken"] * each


def failed(batches: list[Event]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for batch in batches:
        counts.update(batch["failed"] if batch["flow"] == SILVER else {})
    return counts


def assert_held(project: Project, each: int) -> None:
    place = 'partition, "offset"'
    held = once_each("quarantine", project.rows(QUARANTINE, f'{place}, rules, value, "row"'), 2)
    kept = once_each("silver", project.rows(SILVER, '_source.partition, _source."offset", usage'), 2)
    assert not held.keys() & kept.keys()
    assert len(held) + len(kept) == 16 * each
    assert len(kept) == 11 * each
    rules: Counter[str] = Counter(rule for row in held.values() for rule in row[0])
    said = dict.fromkeys([*RULES, SITE, "malformed"], each)
    assert rules == {rule: n for rule, n in said.items() if rule != "values_to_not_be_null(usage)"}
    topic = project.topic("iot-data-input")
    for found, value, row in held.values():
        assert found == ["malformed"] or json.loads(row)["_source"]["topic"] == topic
        assert (value == b"broken") == (found == ["malformed"])


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_few_rows_and_many_are_held_back_with_their_reasons_once(project: Project, killed: bool) -> None:
    send(project, values(each=20))
    batches = project.once(SILVER)
    assert failed(batches) == dict.fromkeys([*RULES, SITE, "malformed"], 20)
    assert_held(project, 20)

    send(project, values(each=700))  # more than travel through the process
    if killed:
        with project.run("--once", fail=f"committing:{SILVER}:1=python") as run:
            assert run.wait() == -signal.SIGKILL, run.said()
    project.once(SILVER)
    assert_held(project, 720)


def failure_of(project: Project, table: str) -> str:
    """What `status` says of a flow that has failed."""
    (standing,) = (one for one in json.loads(project.headwater("status", "--json")) if one["table"] == table)
    return str(standing["failed"])


def test_a_rule_that_fails_stops_its_flow_before_the_commit(project: Project) -> None:
    suite = project.root / "quality" / "silver.cpu_metrics.json"
    content: dict[str, Any] = json.loads(suite.read_text())
    usage = next(e for e in content["expectations"] if e["kwargs"].get("max_value") == 100)
    usage["meta"] = {"action": "fail"}
    mended = suite.read_text()
    suite.write_text(json.dumps(content))
    send(project, values(each=2))
    run = project.drain(SILVER)
    assert run.code() == 1, run.said()
    assert "values_to_be_between(usage) (2 rows, " in run.stderr and "999.9" in run.stderr, run.said()
    assert "100.5" not in run.stderr
    assert "values_to_be_between(usage) (2 rows, " in failure_of(project, SILVER)
    assert failure_of(project, SILVER).endswith(" [EXPECTATION_FAILED]")
    assert project.rows(SILVER, "*") == []
    assert project.rows(QUARANTINE, "*") == []
    suite.write_text(mended)
    project.once(SILVER)
    assert_held(project, 2)
    assert failure_of(project, SILVER) == ""


def test_a_table_that_fails_when_it_is_due_is_written_no_more_while_others_go_on(project: Project) -> None:
    file = project.root / "quality" / f"{GOLD}.json"
    suite: dict[str, Any] = json.loads(file.read_text())
    below = {"column": "max_usage", "max_value": 60}
    suite["expectations"] += [{"type": "expect_column_max_to_be_between", "kwargs": below, "id": "calm"}]
    suite["meta"]["every"] = "1s"
    file.write_text(json.dumps(suite))
    send(project, [json.dumps(GOOD).encode()] * 8)
    with project.live(tables=(GOLD,)) as run:
        run.until(lambda: [e for e in run.events if e["event"] == "validation"], "gold is validated")
        send(project, [json.dumps({**GOOD, "usage": 70.0}).encode()] * 8)
        run.until(lambda: "gold.cpu_usage_5m failed: " in run.stderr, "gold fails")
        read = project.rows(GOLD, "_partial.avg_usage_count")
        send(project, [json.dumps(GOOD).encode()] * 8)
        run.until(lambda: project.written(SILVER) == 24, "silver goes on")
        assert run.stop() == 1, run.said()
    assert read == project.rows(GOLD, "_partial.avg_usage_count") == [(16,)]
    assert "fails calm (observed 70.0); nothing more is written to it" in run.stderr, run.said()


@pytest.mark.parametrize(
    ("count", "bound"), [(30_000, 12_000), pytest.param(150_000, 40_000, marks=pytest.mark.torture)]
)
def test_each_kind_of_bad_record_is_counted_and_held_as_the_ledger_says(
    tmp_path: Path, broker: str, spark: SparkSession, count: int, bound: int
) -> None:
    """One in a hundred of each kind: every count adds up, in each batch, in all, and in every table."""
    faults = Faults(late=0.01, duplicate=0.01, each=0.01)
    project = Project(tmp_path / "project", broker=broker, faults=faults, max_rows_per_batch=bound)
    oracle = project.generator
    ledger = project.produce(count)
    kinds = [*ledger.malformed.items(), *ledger.invalid.items()]
    assert [kind for kind, _ in kinds] == [*sorted(oracle.MALFORMED), *sorted(oracle.INVALID)]
    assert all(0.9 < n / count / 0.01 < 1.1 for _, n in kinds), kinds
    silver = [batch for batch in project.once() if batch["flow"] == SILVER]
    assert len(silver) > 2
    for batch in silver:
        assert batch["rows_in"] == batch["rows_out"] + batch["dropped"] + batch["quarantined"]
    assert failed(silver) == oracle.failed(ledger.faults)
    held = [rule for (rules,) in project.rows(QUARANTINE, "rules") for rule in rules]
    assert Counter(held) == oracle.held(ledger.faults)
    lost = sum(n for fault, n in ledger.faults.items() if not oracle.kept(fault))
    assert sum(batch["quarantined"] for batch in silver) == project.written(QUARANTINE) == lost
    assert project.written(SILVER) + lost == project.written(BRONZE) == count
    assert_lake_equals_oracle(project)
    assert_alerts(project)


def assert_alerts(project: Project) -> None:
    """Alerts do not wait for the gate: each reading above the threshold is there, an invalid one too."""
    # A field that comes twice is what Spark's own decoder can't tell: see
    # `headwater.connectors.decode.native`.
    taken = (r._replace(fault=None) if r.fault == "malformed/duplicate_field" else r for r in project.records)
    want = Counter(known(alert._asdict()) for alert in project.generator.alerts(taken))
    messages = tail.records(project.client(), project.topic("iot-filtered-alert"), "earliest", follow=False)
    got = Counter(known(json.loads(message.value() or b"")) for message in messages)
    assert got == want, f"missing {list((want - got).items())[:5]}, too many {list((got - want).items())[:5]}"


def known(alert: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """An alert without the fields that it does not know."""
    return tuple(sorted((name, value) for name, value in alert.items() if value is not None))
