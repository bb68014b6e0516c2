"""What more history and more tables cost: start-up, a batch, freshness, memory, a query, and rest.

A project has chains of five tables: a topic's, a decoded one, an aggregate over windows, a running one, and a
view. All topics together get 1,000 events a second, however many there are.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import headwater
from bench import chart, lab
from bench.footprint import Footprint, seconds
from bench.freshness import EVERY, summary
from bench.live import Live
from bench.outside import times
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import BackgroundProducer, Record, Topic, run_producer, wall_clock
from headwater.project.paths import engine_folder

TABLES = 5  # of a chain
BASE = 100_000  # events of history, of all chains together
CASES = ((10, 1), (10, 10), (10, 100), (50, 1), (100, 1))  # tables, and times the base of history
DRAWN: dict[str, Callable[[dict[str, Any]], float]] = {
    "start": itemgetter("start"),
    "batch of silver": itemgetter("batch of silver.readings"),
    "batch of gold": itemgetter("batch of gold.usage"),
    "batch of a view": itemgetter("batch of gold.busiest"),
    "event to gold, p50": lambda found: found["gold"]["p50"],
    "connect and query": itemgetter("connect and query"),
}
RATE = 1_000  # events a second, of all chains together
WARM_UP, SAMPLED, REST = 30.0, 30.0, 20.0  # seconds
WAITING = 1_000  # events that wait when a run is started

SILVER = """CREATE STREAMING TABLE readings_{at} TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'host STRING, core INT, usage DOUBLE, occurred_at BIGINT'
) AS SELECT host, core, usage, occurred_at, timestamp_millis(occurred_at) AS at, _source, ingested_at
FROM STREAM bronze.readings_{at}"""
USAGE = """CREATE STREAMING TABLE usage_{at} AS
SELECT window(at, '5 minutes').start AS since, host, count(*) AS readings, max(occurred_at) AS newest
FROM STREAM silver.readings_{at} WATERMARK at DELAY OF INTERVAL 10 SECONDS
GROUP BY window(at, '5 minutes'), host"""
TOTALS = """CREATE STREAMING TABLE totals_{at} AS
SELECT host, core, count(*) AS readings, max(usage) AS most
FROM STREAM silver.readings_{at} GROUP BY host, core"""
BUSIEST = """CREATE MATERIALIZED VIEW busiest_{at} TBLPROPERTIES ('headwater.keys' = 'host') AS
SELECT host, max(readings) AS readings FROM gold.usage_{at} GROUP BY host"""
DEFINITIONS = {"silver/readings": SILVER, "gold/usage": USAGE, "gold/totals": TOTALS, "gold/busiest": BUSIEST}


def measure(*only: int) -> dict[str, Any]:
    """{tables and history → figures}, and where pictures are.

    Args:
        only: cases by their numbers, from 0.
    """
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for at, (tables, scale) in enumerate(CASES):
        if not only or at in only:
            taken = found[tables, scale * BASE] = case(tables // TABLES, scale * BASE)
            print(tables, scale * BASE, json.dumps(taken), file=sys.stderr, flush=True)
    fewest = CASES[0][0]
    pictures = {
        "tables": {tables: each for (tables, events), each in found.items() if events == BASE},
        "history": {events: each for (tables, events), each in found.items() if tables == fewest},
    }
    return {
        **{f"{tables} tables, {events:,} events": each for (tables, events), each in found.items()},
        **{f"picture of {of}": str(_drawn(of, each)) for of, each in pictures.items() if len(each) > 1},
    }


def _drawn(of: str, found: dict[int, dict[str, Any]]) -> Path:
    lines = {
        (line, ""): {at: float(figure(each)) for at, each in found.items()} for line, figure in DRAWN.items()
    }
    x = {"tables": "tables", "history": "events of history"}[of]
    return chart.draw(f"growth-{of}", lines, x=x, y="seconds")


def case(chains: int, history: int) -> dict[str, Any]:
    """The figures of one project.

    `start` is from the start of a process to the first gold commit of what has waited, `connect and query` to
    a new reader's first answer, in seconds; `idle` is the share of a core that a run without input takes.
    """
    home = _project(chains)
    project = lab.load(home)
    client = kafka.client_options(project.conf, kafka.ensure_running(home, project.conf))
    create_topics(client, [Topic(f"readings_{at:02}", partitions=1) for at in range(chains)])
    first = int(time.time() * 1_000) - history  # a millisecond apart, the last of them now
    run_producer(_events(chains, iter(range(first, first + history))), client=client, count=history)
    subprocess.run(
        [sys.executable, "-m", "headwater", "run", "--once", "--json"],
        cwd=home,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    run_producer(islice(_events(chains, wall_clock()), WAITING), client=client, count=WAITING)
    with Live(home) as live:
        live.wait(lambda: bool(live.of("gold.usage_00")))
        found: dict[str, Any] = {"start": round(live.of("gold.usage_00")[0].at - live.began, 2)}
        with BackgroundProducer(_events(chains, wall_clock()), client=client, rate=RATE):
            time.sleep(WARM_UP)
            began, taken = time.time(), seconds(live.process)
            with Footprint(live.process) as footprint:
                ages = _ages(home)
            found["cores"] = round((seconds(live.process) - taken) / (time.time() - began), 2)
        for name in ("silver.readings", "gold.usage", "gold.busiest"):
            lasted = [batch.seconds for batch in live.of(f"{name}_00") if batch.began >= began]
            found[f"batch of {name}"] = round(statistics.median(lasted), 3)
        found["gold"] = summary(ages)
        found["memory, GB"] = footprint.most
        found["connect and query"], found["query again"] = _queried(home)
        time.sleep(REST / 2)
        began, taken = time.time(), seconds(live.process)
        time.sleep(REST)
        found["idle"] = round((seconds(live.process) - taken) / (time.time() - began), 3)
    return found


def _project(chains: int) -> Path:
    """A project with so many chains, without a lake."""
    home = engine_folder(lab.ROOT) / "growth"
    shutil.rmtree(home / ".headwater" / "lake", ignore_errors=True)
    for folder in ("bronze", "silver", "gold", "conf"):
        shutil.rmtree(home / folder, ignore_errors=True)
        (home / folder).mkdir(parents=True)
    (home / "conf" / "local.yaml").write_text("kafka: embedded\nlake: .headwater/lake\nbroker: {port: 0}\n")
    topics = [f'readings_{at:02} = hw.topic("readings_{at:02}")\n' for at in range(chains)]
    (home / "bronze" / "readings.py").write_text(f"import headwater as hw\n\n{''.join(topics)}")
    for at in range(chains):
        for path, text in DEFINITIONS.items():
            (home / f"{path}_{at:02}.sql").write_text(text.format(at=f"{at:02}"))
    return home


def _events(chains: int, clock: Iterator[int]) -> Iterator[Record]:
    """Readings, for one topic after the other."""
    draw = random.Random(11)
    for at, now in enumerate(clock):
        host = f"host{draw.randrange(20)}"
        value = {"host": host, "core": at % 5, "usage": round(draw.random() * 90, 2), "occurred_at": now}
        yield Record(f"readings_{at % chains:02}", host.encode(), json.dumps(value).encode(), 0)


def _ages(home: Path) -> list[float]:
    """How old the newest event is that a reader finds in gold, again and again."""
    connection, done, found = headwater.connect(home), threading.Event(), []
    threading.Timer(SAMPLED, done.set).start()
    for _ in times(EVERY, done):
        row = connection.execute("SELECT max(newest) FROM gold.usage_00").fetchone()
        found.append(time.time() - row[0] / 1_000)
    return found


def _queried(home: Path) -> tuple[float, float]:
    """Seconds of a new reader's first answer, and of its others."""
    sql = "SELECT host, sum(readings) FROM gold.usage_00 GROUP BY host"
    began = time.monotonic()
    connection = headwater.connect(home)

    def answered(since: float) -> float:
        connection.execute(sql).fetchall()
        return time.monotonic() - since

    first = answered(began)
    return round(first, 3), round(statistics.median(answered(time.monotonic()) for _ in range(9)), 3)
