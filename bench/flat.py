"""Whether a batch takes as long after thousands of commits as after a hundred, with maintenance as in a run.

Two lakes, an old one and a young one, take their batches in turns, so that what else the machine does at that
time slows both alike.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import lab
from headwater.common.progress import Board
from headwater.connectors.produce import Faults, Record, load_generator, stepped
from headwater.flows.context import Context
from headwater.flows.declared import flow_of
from headwater.operations import maintain
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project.load import Project
from headwater.run.maintenance import Upkeep
from headwater.runtime import sessions
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

MAINTAINED = 200  # batches between two times of maintenance
YOUNG, PAIRS, ROWS = 100, 40, 200
BATCHES = (3_000 + YOUNG, 5_000 + YOUNG)  # as many since the last maintenance as the young lake has had
FAULTS = Faults(late=0.01, duplicate=0.01)
FED = {"iot": "bronze.iot_metrics", "sales": "bronze.purchases"}
FLOWS = (
    "silver.cpu_metrics",
    "gold.cpu_usage_5m",
    "gold.cpu_usage_5m_final",
    "silver.purchases",  # each purchase once, whenever it was sent before
    "gold.item_sales",
)


def measure(*batches: int) -> dict[str, Any]:
    """{batches → {flow → milliseconds of a batch after a hundred and after those, ratio, files, log}}.

    Args:
        batches: as many, in ascending order; none: `BATCHES`.
    """
    project = lab.load(lab.prepare())
    spark = sessions.start(project.conf)
    tables = analysis.analyse(spark, project)
    old = _Pipeline(project, spark, tables, "old")
    young = _Pipeline(project, spark, tables, "young")
    for _ in range(YOUNG):
        young.batch()
    found = {}
    for upto in batches or BATCHES:
        while old.done < upto:
            old.batch()
        taken = [(young.batch(), old.batch()) for _ in range(PAIRS)]
        found[str(upto)] = {
            name: _summary([(y[name], o[name]) for y, o in taken]) | old.size(name) for name in FLOWS
        }
        print(upto, json.dumps(found[str(upto)]), file=sys.stderr, flush=True)
    return found


class _Pipeline:
    """The flows of a lake, each fed and stepped in turn."""

    def __init__(self, project: Project, spark: SparkSession, tables: dict[str, Analysed], lake: str) -> None:
        project = lab.in_lake(project, lake, fresh=True)
        kept = project.conf.maintain.model_copy(update={"keep": "1 minute"})
        project = replace(project, conf=project.conf.model_copy(update={"maintain": kept}))
        self._lake, board = Lake(project.conf.lake), Board(notices=StringIO())
        self._context = Context(project, tables, spark, self._lake, board)
        self._feeds = {name: _Feed(self._lake, tables[name].stored, name) for name in FED.values()}
        self._events = {
            name: load_generator(project.root, system).records(seed=1, faults=FAULTS, clock=stepped())
            for system, name in FED.items()
        }
        self._flows: dict[str, Any] = {}
        self._upkeep = Upkeep(self._context, self._flows)
        self.done = 0

    def batch(self) -> dict[str, float]:
        """Feed every flow, and have it take that: milliseconds of each."""
        taken = {}
        for name, feed in self._feeds.items():
            feed.add(islice(self._events[name], ROWS))
        for name in FLOWS:
            flow = self._flows.get(name) or self._flows.setdefault(name, flow_of(self._context, name))
            began = time.perf_counter()
            assert flow.step(), name
            taken[name] = 1_000 * (time.perf_counter() - began)
            flow.committer.checkpoint()
        self.done += 1
        if self.done % MAINTAINED == 0:
            self._upkeep.step()
            for name, feed in self._feeds.items():
                maintain.targets_of(self._context.project, self._lake, name, [feed.table])
        return taken

    def size(self, name: str) -> dict[str, int]:
        """How many files a table's folder has, and how many of them are its log's."""
        table = self._lake.place(name).path
        log = sum(1 for _ in (table / "_delta_log").iterdir())
        return {"files": sum(1 for _ in table.rglob("*.parquet")), "log": log}


class _Feed:
    """A bronze table that this process writes in place of Kafka's flow."""

    def __init__(self, lake: Lake, columns: pa.Schema, name: str) -> None:
        self._columns = columns
        self.table = Target(lake.create(name, columns, properties={}))
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
        name = self.table.place.name
        ends = {str(partition): end + 1 for partition, end in self._ends.items()}
        identity = Identity(name, 1, self.table.last(name) + 1, {rows[0]["topic"]: ends})
        filled = pa.Table.from_pylist(rows, self._columns)
        self.table.append(self.table.write(filled, f"{identity.sequence:012d}"), identity)
        self.table.checkpoint()


def _summary(pairs: list[tuple[float, float]]) -> dict[str, float]:
    young, old = (statistics.median(each) for each in zip(*pairs, strict=True))
    return {"young_ms": round(young), "old_ms": round(old), "ratio": round(old / young, 2)}
