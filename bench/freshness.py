"""Freshness at a rate: event → queryable in each table by a DuckDB reader, and event → alert."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer

import headwater
from bench import lab
from bench.footprint import Footprint
from bench.outside import Outside, Samples, times
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.produce import BackgroundProducer, Record, wall_clock
from headwater.run.supervisor import Options, Run

RATE = 1_000  # events per second
WARM_UP = 40.0  # seconds before the first sample
SECONDS = 60.0  # of sampling
EVERY = 0.5  # seconds from one look at the tables to the next, about

GOLD, HOT = "gold.cpu_usage_5m", "gold.cpu_hot_5m"
NEWEST = {
    "bronze": "SELECT epoch_ms(max(timestamp)) FROM bronze.iot_metrics",
    "silver": "SELECT max(occurred_at) FROM silver.cpu_metrics",
    "gold": f"SELECT epoch_ms(max(last_event)) FROM {GOLD}",
}


def events() -> Iterator[Record]:
    """Readings dated now, without end; one in ten above the alert's threshold."""
    draw = random.Random(11)
    for at, now in enumerate(wall_clock()):
        host, usage = f"host{at % 6}", 95.0 if at % 10 == 0 else draw.random() * 90
        value = {"hostname": host, "cpu": f"cpu{at % 5 + 1}", "usage": round(usage, 2), "occurred_at": now}
        yield Record("iot-data-input", host.encode(), json.dumps(value).encode(), at % 4)


def measure(rate: int = RATE, seconds: float = SECONDS) -> dict[str, Any]:
    """{table or alert → seconds from event to reader: p50, p95, p99, max, samples}, how many events came a
    second, and the most memory that the run's processes had, in GB."""
    project = lab.load(lab.prepare())
    project = replace(lab.in_lake(project, "lake", fresh=True), alerts=project.alerts)
    bootstrap = kafka.ensure_running(project.root, project.conf)
    client = kafka.client_options(project.conf, bootstrap)
    run = Run(project, Options((GOLD, HOT), start="latest"), Board())
    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    with Outside(_watch, project.root, client, rate) as outside:
        time.sleep(WARM_UP)
        before, began = lab.records(project), time.monotonic()
        with Footprint(psutil.Process(), apart=[outside.pid]) as footprint:
            found = outside.sample(seconds)
        rate = round((lab.records(project) - before) / (time.monotonic() - began))
    run.stop()
    runner.join()
    figures: dict[str, Any] = {name: summary(samples) for name, samples in found.items()}
    return {**figures, "events per second": rate, "memory, GB": footprint.most}


def _watch(begun: Event, done: Event, root: Path, client: dict[str, Any], rate: int) -> Samples:
    """Send events at a rate, and sample how old the newest are that readers see, and alerts."""
    found: Samples = {name: [] for name in (*NEWEST, "alert")}
    with BackgroundProducer(events(), client=client, rate=rate):
        begun.wait()
        alerts = threading.Thread(target=_alerts, args=(client, found["alert"], done))
        alerts.start()
        _probe(_reader(root), found, done)
        alerts.join()
    return found


def _reader(folder: Path) -> Callable[[str], Any]:
    connection = headwater.connect(folder)
    return lambda sql: connection.execute(sql).fetchone()


def _probe(read: Callable[[str], Any], found: Samples, done: Event) -> None:
    """One reader that asks each table in turn: a second would take cores from the flows it measures."""
    for _ in times(EVERY, done):
        for name, sql in NEWEST.items():
            newest = read(sql)[0]
            if newest is not None:
                found[name].append(time.time() - newest / 1000)


def _alerts(client: dict[str, Any], samples: list[float], done: Event) -> None:
    consumer = Consumer({**client, "group.id": f"bench-{time.time()}", "auto.offset.reset": "latest"})
    consumer.subscribe(["iot-filtered-alert"])
    while not done.is_set():
        for message in consumer.consume(1000, timeout=0.02):
            text = json.loads(message.value())["time_ltz"]
            whole, millis = text.split(".")
            at = time.mktime(time.strptime(whole, "%Y-%m-%d %H:%M:%S")) - time.timezone + int(millis) / 1000
            samples.append(time.time() - at)
    consumer.close()


def summary(samples: list[float]) -> dict[str, float]:
    """Percentiles of samples, and how many there are."""
    ordered = sorted(samples)
    if not ordered:
        return {"samples": 0}
    at = {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in _SHARES.items()}
    return {**{name: round(value, 3) for name, value in at.items()}, "samples": len(ordered)}


_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
