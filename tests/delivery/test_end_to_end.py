"""Half a day of records through every command: produce, run, query; and what a second run changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from harness import BRONZE, FINAL, GOLD, HOT, QUARANTINE, SILVER, Project, once_each
from oracles import assert_lake_equals_oracle
from pyspark.sql import SparkSession

from headwater.connectors.kafka import tail
from headwater.connectors.produce import Faults, Record

COUNT, FAULTS = 40_000, Faults(late=0.01, duplicate=0.01, malformed=0.01)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, broker: str, spark: SparkSession) -> Project:
    """40,000 records, produced by the command line and drained."""
    root = tmp_path_factory.mktemp("day") / "project"
    project = Project(root, broker=broker, seed=7, faults=FAULTS)
    shares = ("--late", "0.01", "--duplicate", "0.01", "--malformed", "0.01")
    text = project.headwater("produce", "iot", "--count", str(COUNT), "--seed", "7", *shares, "--json")
    ledger = json.loads(text)["ledger"]
    project.note(COUNT)
    assert ledger["produced"] == COUNT
    assert sum(ledger["malformed"].values()) == sum(
        1 for r in project.records if r.fault and r.fault.startswith("malformed/")
    )
    project.ledger = ledger  # type: ignore[attr-defined]
    project.first = project.once()  # type: ignore[attr-defined]
    return project


def topic(project: Project, name: str) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """Key and value of each record of a topic, from its start."""
    for message in tail.records(project.client(), project.topic(name), "earliest", follow=False):
        key, value = message.key(), message.value()
        assert value is not None
        yield (json.loads(key) if key and key.startswith(b"{") else None), json.loads(value)


def test_the_lake_equals_the_oracle(project: Project) -> None:
    assert_lake_equals_oracle(project)


def test_a_query_counts_what_was_produced(project: Project) -> None:
    text = project.headwater("query", "--format", "json", f"select count(*) n from {BRONZE}")
    assert json.loads(text) == [{"n": COUNT}]


def test_each_batch_adds_up(project: Project) -> None:
    batches = project.first  # type: ignore[attr-defined]
    silver = [batch for batch in batches if batch["flow"] == SILVER]
    assert all(batch["rows_in"] == batch["rows_out"] + batch["quarantined"] for batch in silver)
    malformed = sum(project.ledger["malformed"].values())  # type: ignore[attr-defined]
    assert sum(batch["quarantined"] for batch in silver) == malformed
    assert sum(batch["rows_in"] for batch in batches if batch["flow"] == BRONZE) == COUNT
    assert sum(batch["rows_in"] for batch in batches if batch["flow"] == GOLD) == COUNT - malformed


def test_the_alert_topic_holds_exactly_the_oracles_alerts(project: Project) -> None:
    # A field that comes twice is what Spark's own decoder can't tell: see
    # `headwater.connectors.decode.native`.
    taken = (r._replace(fault=None) if r.fault == "malformed/duplicate_field" else r for r in project.records)
    got = Counter(tuple(sorted(alert.items())) for _, alert in topic(project, "iot-filtered-alert"))
    want = Counter(tuple(sorted(alert._asdict().items())) for alert in project.generator.alerts(taken))
    assert got == want, f"missing {list((want - got).items())[:5]}, too many {list((got - want).items())[:5]}"


def test_the_last_value_of_each_published_key_is_a_window_that_is_over(project: Project) -> None:
    assert_published_equals_finals(project)


def test_a_second_run_changes_nothing(project: Project) -> None:
    before = project.versions()
    assert project.once() == []
    assert project.versions() == before
    assert {BRONZE, SILVER, GOLD, QUARANTINE} <= set(before)


def test_a_changed_reference_table_and_headers_come_with_the_next_batch(project: Project) -> None:
    hosts = project.root / "conf" / "reference" / "hosts.csv"
    enriched = '_source.partition, _source."offset", hostname, site, alert_threshold'
    old = once_each("silver", project.rows(SILVER, enriched), 2)
    hosts.write_text(hosts.read_text().replace("doc,north,90", "doc,east,70") + "extra,east,50\n")
    before = project.versions()[SILVER]

    value = b'{"hostname":"extra","cpu":"cpu1","usage":12.5,"occurred_at":1767225600000}'
    extra = Record(project.topic("iot-data-input"), b"extra", value, 0)
    producer = Producer(project.client())
    producer.produce(
        extra.topic, value, b"extra", extra.partition, headers=[("trace", b"\x00\xff"), ("none", None)]
    )
    assert producer.flush(30) == 0
    project.records.append(extra)
    project.produce(5_000)
    project.once()

    assert_lake_equals_oracle(project)
    assert project.versions()[SILVER] == before + 1
    rows = once_each("silver", project.rows(SILVER, enriched), 2)
    assert {at: row for at, row in rows.items() if at in old} == old
    table = [line.split(",") for line in hosts.read_text().splitlines()[1:]]
    new = {row for at, row in rows.items() if at not in old}
    assert new == {(host, site, float(threshold)) for host, site, threshold in table}
    headers = project.rows(BRONZE, "key, headers")
    assert [h for k, h in headers if k == b"extra"] == [
        [{"key": "trace", "value": b"\x00\xff"}, {"key": "none", "value": None}]
    ]
    assert_published_equals_finals(project)


def test_hot_windows_are_many_enough_to_mean_something(project: Project) -> None:
    assert len(project.rows(HOT, "*")) > 10


def assert_published_equals_finals(project: Project) -> None:
    """Keeping the last value of each key of the topic gives the windows that are over."""
    last: dict[str, dict[str, Any]] = {}
    for key, value in topic(project, "iot-avg-output"):
        assert key is not None
        last[json.dumps(key, sort_keys=True)] = value
    stamp = "strftime(%s, '%%Y-%%m-%%dT%%H:%%M:%%S.000000Z')"
    columns = f"{stamp % 'window_start'}, {stamp % 'window_end'}, hostname, cpu, avg_usage, max_usage"
    names = ("window_start", "window_end", "hostname", "cpu", "avg_usage", "max_usage")
    want = [dict(zip(names, row, strict=True)) for row in project.rows(FINAL, columns)]
    order = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(map(order, last.values())) == sorted(map(order, want))
