"""A backlog is taken in batches within the bound, and all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import BRONZE, GOLD, QUARANTINE, SILVER, Event, Project
from oracles import assert_gold, assert_lake_equals_oracle, gold
from pyspark.sql import SparkSession

from headwater.connectors import produce


def bounded(batches: list[Event], bound: int, count: int) -> None:
    """Bronze and silver took `count` rows, none of their batches more than the bound."""
    for flow in (BRONZE, SILVER):
        rows = [batch["rows_in"] for batch in batches if batch["flow"] == flow]
        print(f"{flow}: {len(rows)} batches of {min(rows)} to {max(rows)} rows")
        assert sum(rows) == count
        assert len(rows) >= count // bound
        assert max(rows) <= bound


def test_a_backlog_is_taken_in_bounded_batches(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    project = Project(tmp_path / "project", broker=broker, max_rows_per_batch=2_000)
    project.produce(14_000)
    bounded(project.once(), 2_000, 14_000)
    assert_lake_equals_oracle(project)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_a_long_backlog(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    """Three million: counted in the lake, and gold against the oracle; the records are not kept here."""
    count, bound = 3_000_000, 250_000
    project = Project(tmp_path / "project", broker=broker, max_rows_per_batch=bound)

    def records():
        stream = project.generator.records(seed=11, faults=project.faults, clock=produce.stepped())
        for _ in range(count):
            yield next(stream)

    sent = produce.run_producer(records(), client=project.client(), count=count)
    run = project.run("--once")
    assert run.wait(within=900) == 0, run.said()
    bounded(run.batches(), bound, count)
    once = 'count(*), count(DISTINCT (partition, "offset"))'
    source = 'count(*), count(DISTINCT (_source.partition, _source."offset"))'
    held = sum(n for fault, n in sent.ledger.faults.items() if not project.generator.kept(fault))
    averaged = count - held - sent.ledger.invalid["no_usage"]
    assert project.rows(BRONZE, once) == [(count, count)]
    assert project.rows(SILVER, source) == [(count - held, count - held)]
    assert project.rows(QUARANTINE, once) == [(held, held)]
    want = project.generator.cpu_usage_5m(records())
    assert_gold({tuple(key): tuple(usage) for key, usage in want.items()}, gold(project))
    assert sum(row[2] for row in gold(project).values()) == averaged
    assert run.batches(GOLD)
