"""Nexmark's queries over cut-up, shuffled streams: each table is what DuckDB makes of all events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.nexmark.answers import ANSWERS, difference, events
from headwater import query
from headwater.connectors.produce import DEFAULT_START, DEFAULT_STEP, Faults, load_generator, stepped
from headwater.flows import computed
from headwater.testing import Project, Record

PROJECT = Path(__file__).parent.parent / "bench" / "nexmark" / "project"
CUTS = 4
SHUFFLED = 0.2  # of all events come after up to 400 others


@pytest.mark.parametrize(
    ("events_sent", "late"),
    [
        (3_000, SHUFFLED),
        pytest.param(30_000, 0.0, marks=pytest.mark.torture),
        pytest.param(30_000, SHUFFLED, marks=pytest.mark.torture),
    ],
)
def test_each_query_is_what_duckdb_answers(
    interpreted: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events_sent: int,
    late: float,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    monkeypatch.setattr(computed, "WHOLE", -1)
    case = Project(PROJECT, tmp_path, spark=interpreted)
    stream = load_generator(PROJECT, "nexmark").records(
        seed=seed, faults=Faults(late=late), clock=stepped(DEFAULT_START, DEFAULT_STEP)
    )
    sent = [next(stream) for _ in range(events_sent)]
    for at in range(CUTS):
        part = sent[at * events_sent // CUTS : (at + 1) * events_sent // CUTS]
        for topic in sorted({record.topic for record in part}):
            mine = [record for record in part if record.topic == topic]
            case.send(topic, [Record(each.value, each.key, at % 2) for at, each in enumerate(mine)])
        case.step()
    database = events(sent)
    tables = query.connect(case.root)
    for name in ANSWERS:
        rows = tables.execute(f"SELECT * FROM gold.{name}").to_arrow_table()
        assert not difference(database, name, rows), name
