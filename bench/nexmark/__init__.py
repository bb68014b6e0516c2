"""Nexmark: an auction house's people, auctions and bids, and the benchmark's queries over them.

Each query is drained by itself from Kafka's topics, through bronze and silver, into a Delta table of an empty
lake; what the table then holds is compared with what DuckDB makes of the same events.
"""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import duckdb
from deltalake import DeltaTable

from bench import lab
from bench.nexmark.answers import ANSWERS, INTERVAL, difference, events
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import (
    DEFAULT_START,
    DEFAULT_STEP,
    Faults,
    load_generator,
    run_producer,
    stepped,
)
from headwater.project.load import Project
from headwater.project.paths import engine_folder
from headwater.runtime import sessions
from headwater.storage.lake import Lake
from headwater.storage.names import PARTIAL

EVENTS = 1_000_000
READS = {  # query → the topics that it reads; others read bids alone
    **dict.fromkeys(("q3", "q8"), ("person", "auction")),
    **dict.fromkeys(("q4", "q6", "q9", "q20", INTERVAL), ("auction", "bid")),
}


def measure(count: int = EVENTS) -> dict[str, Any]:
    """{query → events/s from Kafka to its table, the events that it reads, and whether its rows are right};
    and the geometric mean of the rates of Nexmark's own."""
    found = drained(*filled(count))
    mean = geometric_mean(each["events_per_second"] for name, each in found.items() if name != INTERVAL)
    return {**found, "geometric_mean": round(mean)}


def filled(count: int) -> tuple[Project, duckdb.DuckDBPyConnection]:
    """The project, whose broker has the generator's first events, and a database with the same."""
    project = _prepared()
    return project, events(_sent(project, count))


def drained(project: Project, database: duckdb.DuckDBPyConnection) -> dict[str, dict[str, Any]]:
    """{query → events/s, the events that it reads, and whether its rows are right}; one warms up before."""
    numbers = {kind: database.execute(f"SELECT count(*) FROM {kind}").fetchall()[0][0] for kind in _KINDS}
    sessions.start(project.conf)
    lab.drain(lab.in_lake(project, "warm", fresh=True), "gold.q20")
    found: dict[str, dict[str, Any]] = {}
    for name in ANSWERS:
        lake = lab.in_lake(project, "measured", fresh=True)
        seconds, _ = lab.drain(lake, f"gold.{name}")
        rows = DeltaTable(Lake(lake.conf.lake).place(f"gold.{name}").path).to_pyarrow_table()
        taken = sum(numbers[kind] for kind in READS.get(name, ("bid",)))
        wrong = difference(database, name, rows.drop_columns([c for c in rows.column_names if c in _OWN]))
        found[name] = {"events_per_second": round(taken / seconds), "events": taken, "right": not wrong}
    return found


_KINDS = ("person", "auction", "bid")
_OWN = ("_source", "ingested_at", PARTIAL)  # columns that the engine keeps beside a query's


def _prepared() -> Project:
    home = engine_folder(lab.ROOT) / "bench-nexmark"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(Path(__file__).parent / "project", home)
    with (home / "conf" / "local.yaml").open("a") as conf:
        conf.write("broker: {port: 0}\n")
    return lab.load(home)


def _sent(project: Project, count: int) -> list[Any]:
    """The first events of the generator, which are in the topics."""
    client = kafka.client_options(project.conf, kafka.ensure_running(project.root, project.conf))
    generator = load_generator(project.root, "nexmark")
    create_topics(client, generator.topics)
    stream = generator.records(seed=1, faults=Faults(), clock=stepped(DEFAULT_START, DEFAULT_STEP))
    sent = list(islice(stream, count))
    run_producer(iter(sent), client=client, count=count)
    return sent
