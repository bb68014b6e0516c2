"""A rebuild of two systems, a million events of history each: its rate alone and beside a live run, and what
it does to how fresh the live tables are."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
from bench import lab
from bench.live import Live
from headwater.common.report import BatchReport
from headwater.connectors import kafka
from headwater.connectors.produce import BackgroundProducer, Record, wall_clock

ROWS = 1_000_000  # of each system
RATE = 1_000  # live events a second, of both together
WARM_UP = 60.0  # seconds of live events before the first sample
SECONDS = 60.0  # of sampling before the rebuild
EVERY = 0.2  # seconds between two looks at the tables
SYSTEMS = ("iot", "web")
ROOTS = ("silver.cpu_metrics", "silver.page_views")
NEWEST = {
    "silver.cpu_metrics": "max(occurred_at)",
    "gold.cpu_usage_5m": "epoch_ms(max(last_event))",
    "silver.page_views": "max(viewed_at)",
    "gold.page_views_1m": "epoch_ms(max(last_event))",
}


def measure(rows: int = ROWS, rate: float = RATE) -> dict[str, Any]:
    """{phase → events/s, seconds}; {before, during → {table → seconds from event to reader}}."""
    project = lab.load(home := lab.prepare())
    bootstrap = kafka.ensure_running(project.root, project.conf)
    client = kafka.client_options(project.conf, bootstrap)
    for system in SYSTEMS:
        lab.refill(project, system, rows)

    history, tables = len(SYSTEMS) * rows, project.below([*ROOTS])
    found: dict[str, Any] = {"tables": tables}
    began = time.monotonic()
    events = map(json.loads, _headwater(home, "run", "--once", "--json", *tables).splitlines())
    reports = [BatchReport.parse(event) for event in events if event["event"] == "batch"]
    found["chain, from Kafka"] = _phase(history, time.monotonic() - began, lab.span(reports))
    found["rebuild, alone"] = _rebuilt(home, history)

    with Live(home, *tables), BackgroundProducer(_events(), client=client, rate=rate):
        time.sleep(WARM_UP)
        with _Probe(home) as before:
            time.sleep(SECONDS)
        with _Probe(home) as during:
            found["rebuild, beside a live run"] = _rebuilt(home, history)
        with _Probe(home) as after:
            time.sleep(SECONDS / 2)
    found["freshness"] = {
        name: {"before": before.summary(name), "during": during.summary(name), "after": after.summary(name)}
        for name in NEWEST
    }
    return found


def _events() -> Iterator[Record]:
    """Readings and views dated now, in turns, without end."""
    draw = random.Random(11)
    for at, now in enumerate(wall_clock()):
        host, user = f"host{at % 6}", f"user-{at % 97:04d}"
        if at % 2:
            reading = {"hostname": host, "cpu": f"cpu{at % 5 + 1}", "usage": round(draw.random() * 90, 2)}
            yield _record("iot-data-input", host, {**reading, "occurred_at": now}, at // 2 % 4)
        else:
            view = {"user_id": user, "page": f"/item/{at % 16}", "referrer": None, "viewed_at": now}
            yield _record("page-views", user, view, at // 2 % 4)


def _record(topic: str, key: str, value: dict[str, Any], partition: int) -> Record:
    return Record(topic, key.encode(), json.dumps(value).encode(), partition)


def _rebuilt(home: Path, history: int) -> dict[str, float]:
    began = time.monotonic()
    done = json.loads(_headwater(home, "rebuild", "--json", *ROOTS))
    assert done["swapped"], done
    return _phase(history, time.monotonic() - began, done["seconds"]) | {"rested": round(done["held"], 1)}


def _phase(events: int, whole: float, working: float) -> dict[str, float]:
    return {
        "events_per_second": round(events / working),
        "seconds": round(working, 1),
        "with_start": round(whole, 1),
    }


def _command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "headwater"), *arguments]


def _headwater(home: Path, *arguments: str) -> str:
    done = subprocess.run(_command(*arguments), cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headwater {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


class _Probe(threading.Thread):
    """Asks each table in turn how old its newest event is."""

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        self._connection = headwater.connect(home)
        self._done = threading.Event()
        self._found: dict[str, list[float]] = {name: [] for name in NEWEST}

    def run(self) -> None:
        while not self._done.is_set():
            for name, newest in NEWEST.items():
                row = self._connection.execute(f"SELECT {newest} FROM {name}").fetchone()
                self._found[name].append(time.time() - row[0] / 1000)
            self._done.wait(EVERY)

    def __enter__(self) -> _Probe:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def summary(self, name: str) -> dict[str, float]:
        """Seconds from event to reader: median, 95th percentile, the most."""
        ordered = sorted(self._found[name])
        at = {"p50": 0.5, "p95": 0.95, "max": 1.0}
        return {
            name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)
            for name, share in at.items()
        }
