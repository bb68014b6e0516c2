"""Whether a batch takes as long after thousands of commits as after a hundred."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from itertools import islice
from typing import Any

import pyarrow as pa

from bench import lab
from headwater import analysis
from headwater import spark as sessions
from headwater.flows.context import Context
from headwater.flows.declared import flow_of
from headwater.lake import Lake
from headwater.produce import Faults, Record, load_generator, stepped
from headwater.progress import Board
from headwater.target import Identity, Target

BATCHES, ROWS = 3_000, 200
EARLY, LATE = (80, 120), (-40, None)
FAULTS = Faults(late=0.01, duplicate=0.01)
FED = {"iot": "bronze.iot_metrics", "sales": "bronze.purchases"}
FLOWS = (
    "silver.cpu_metrics",
    "gold.cpu_usage_5m",
    "gold.cpu_usage_5m_final",
    "silver.purchases",  # each purchase once, whenever it was sent before
    "gold.item_sales",
)


def measure(batches: int = BATCHES) -> dict[str, Any]:
    """{flow → milliseconds of a batch at the 100th and at the last, and their ratio}."""
    project = lab.load(lab.prepare())
    project = lab.in_lake(project, "flat", fresh=True)
    spark = sessions.start(project.conf)
    tables = analysis.analyse(spark, project)
    lake, board = Lake(project.conf.lake), Board(notices=StringIO())
    context = Context(project, tables, spark, lake, "", True, "earliest", None, board)
    feeds = {system: _Feed(lake, tables[bronze].stored, bronze) for system, bronze in FED.items()}
    events = {
        system: load_generator(project.root, system).records(seed=1, faults=FAULTS, clock=stepped())
        for system in FED
    }
    flows: dict[str, Any] = {}
    taken: dict[str, list[float]] = {name: [] for name in FLOWS}
    for _ in range(batches):
        for system, feed in feeds.items():
            feed.add(islice(events[system], ROWS))
        for name in FLOWS:
            flow = flows.get(name) or flows.setdefault(name, flow_of(context, name))
            began = time.perf_counter()
            assert flow.step(), name
            taken[name].append(1_000 * (time.perf_counter() - began))
            flow.committer.checkpoint()
    return {name: _summary(found) for name, found in taken.items()}


class _Feed:
    """A bronze table that this process writes in place of Kafka's flow."""

    def __init__(self, lake: Lake, columns: pa.Schema, name: str) -> None:
        self._columns = columns
        self._table = Target(lake.create(name, columns, properties={}))
        self._ends: dict[int, int] = {}

    def add(self, records: Iterator[Record]) -> None:
        now, rows = datetime.now(UTC), []
        for record in records:
            partition = record.partition or 0
            offset = self._ends[partition] = self._ends.get(partition, -1) + 1
            place = {"topic": record.topic, "partition": partition, "offset": offset, "cluster": "main"}
            rows.append(
                {**place, "key": record.key, "value": record.value, "timestamp": now, "ingested_at": now}
            )
        name = self._table.place.name
        ends = {str(partition): end + 1 for partition, end in self._ends.items()}
        identity = Identity(name, 1, self._table.last(name) + 1, {rows[0]["topic"]: ends})
        filled = pa.Table.from_pylist(rows, self._columns)
        self._table.append(self._table.write(filled, f"{identity.sequence:012d}"), identity)
        self._table.checkpoint()


def _summary(found: list[float]) -> dict[str, float]:
    early, late = statistics.median(found[slice(*EARLY)]), statistics.median(found[slice(*LATE)])
    return {"early_ms": round(early), "late_ms": round(late), "ratio": round(late / early, 2)}
