"""The ledger at 1,000 records/s with all its tables on: transaction → in each table, for a DuckDB reader."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import headwater
from bench import lab
from bench.freshness import EVERY, SECONDS, summary
from bench.outside import Outside, Samples, times
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import BackgroundProducer, Faults, Record, load_generator, wall_clock
from headwater.project.load import Project
from headwater.run.supervisor import Options, Run

RATE = 1_000  # records per second, 97% of them transactions
WARM_UP = 60.0  # seconds before the first sample
LINGER = {"linger.ms": 20}  # so long a record waits for others to be sent with, which counts

# {table → how many transactions, or debits, it has taken}, by the hops from the topic to it.
HOPS = {
    "bronze.transactions": (1, "all", "SELECT count(*) FROM bronze.transactions"),
    "silver.transaction_events": (2, "all", "SELECT count(*) FROM silver.transaction_events"),
    "gold.account_balances": (3, "all", "SELECT sum(transactions) FROM gold.account_balances"),
    "silver.transactions": (3, "all", "SELECT count(*) FROM silver.transactions"),
    "gold.segment_spend": (4, "debits", "SELECT sum(debits) FROM gold.segment_spend"),
}


def measure(rate: int = RATE, seconds: float = SECONDS) -> dict[str, Any]:
    """{table → hops from the topic, batches per second, and seconds from a transaction to its reader: p50,
    p95, p99, max, samples}; the tables that wait by their nature only run beside these."""
    project = lab.in_lake(lab.load(lab.prepare()), "lake", fresh=True)
    generator: Any = load_generator(project.root, "ledger")
    names = _below(project, [topic.name for topic in generator.topics])
    client = kafka.client_options(project.conf, kafka.ensure_running(project.root, project.conf))
    create_topics(client, generator.topics)
    board = Board()
    run = Run(replace(project, alerts={}), Options(tuple(names), start="latest"), board)
    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    time.sleep(WARM_UP / 3)  # sources that begin at the end of a topic have begun
    with Outside(_watch, project.root, client, rate) as outside:
        time.sleep(WARM_UP)
        before, began = _batches(board), time.monotonic()
        found = outside.sample(seconds)
        after, lasted = _batches(board), time.monotonic() - began
    run.stop()
    runner.join()
    batches = {name: round((after[name] - before[name]) / lasted, 2) for name in after}
    figures = {
        name: {"hops": hops, "batches": batches.get(name), **summary(found[name])}
        for name, (hops, *_) in HOPS.items()
    }
    return {**figures, "tables": len(names), "batches": round(sum(batches.values()), 1)}


def _watch(begun: Event, done: Event, root: Path, client: dict[str, Any], rate: int) -> Samples:
    """Send records at a rate, and sample the ages of what a reader does not see yet."""
    sent: dict[str, list[float]] = {"all": [], "debits": []}
    generator: Any = load_generator(root, "ledger")
    records = _noting(generator.records(seed=11, faults=Faults(), clock=wall_clock()), sent)
    found: Samples = {name: [] for name in HOPS}
    with BackgroundProducer(records, client={**client, **LINGER}, rate=rate):
        begun.wait()
        _probe(headwater.connect(root).execute, sent, found, done)
    return found


def _below(project: Project, topics: list[str]) -> list[str]:
    """All that is derived from topics."""
    return project.below([name for name, topic in project.topics.items() if topic.topic in topics])


def _batches(board: Board) -> Counter[str]:
    """{flow → batches that it has committed}."""
    return Counter({name: flow.batches for name, flow in list(board.flows.items())})


def _noting(records: Iterator[Record], sent: dict[str, list[float]]) -> Iterator[Record]:
    """The records; when each transaction was made is noted."""
    for record in records:
        if record.topic == "transactions":
            now = time.time()
            sent["all"].append(now)
            if b'"DEBIT"' in (record.value or b""):
                sent["debits"].append(now)
        yield record


def _probe(
    execute: Callable[[str], Any],
    sent: dict[str, list[float]],
    found: Samples,
    done: Event,
) -> None:
    """One reader that asks each table in turn how many it has: the age of the first that it has not."""
    for _ in times(EVERY, done):
        for name, (_, kind, sql) in HOPS.items():
            taken, now = execute(sql).fetchone()[0] or 0, time.time()
            made = sent[kind]
            found[name].append(now - made[taken] if taken < len(made) else 0.0)
