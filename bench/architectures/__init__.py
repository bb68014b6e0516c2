"""System 1 three times: as a batch, as batch and speed layer with a view that merges them, and as it is here.

Each serves `gold.cpu_usage_5m` from the same topic, with a million events of history and 1,000 a second that
come meanwhile; one after the other, alone on the machine. What is told of each: how old the newest event is
that a reader sees, how many seconds of a core it takes a minute, and how many lines it is written in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import psutil

import headwater
from bench import lab
from bench.footprint import seconds
from bench.freshness import events
from headwater.connectors import kafka
from headwater.connectors.produce import BackgroundProducer
from headwater.project.paths import engine_folder
from headwater.query import on_duckdb

ROWS = 1_000_000
RATE = 1_000
WARM_UP, SECONDS, EVERY = 60.0, 120.0, 0.2
APART = 300.0  # seconds between two runs of the batch below a speed layer
HERE = Path(__file__).parent
GOLD = "gold.cpu_usage_5m"
WRITTEN = {
    "batch": [HERE / "batch.py"],
    "lambda": [HERE / "batch.py", HERE / "speed.py", HERE / "merged.sql"],
    "kappa": [lab.ROOT / each for each in ("bronze/iot.py", "silver/iot.py", "gold/cpu_usage_5m.sql")],
}


def measure(rows: int = ROWS, rate: float = RATE) -> dict[str, Any]:
    """{architecture → freshness in seconds, core-seconds a minute, lines}."""
    project = lab.load(home := lab.prepare())
    bootstrap = kafka.ensure_running(project.root, project.conf)
    client = kafka.client_options(project.conf, bootstrap)
    lab.refill(project, "iot", rows)
    folder = engine_folder(lab.ROOT) / "bench" / "architectures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = [sys.executable, "-m"]
    batch = [*program, "bench.architectures.batch", str(folder), bootstrap]
    speed = [*program, "bench.architectures.speed", str(folder), bootstrap]
    run = [str(Path(sys.executable).parent / "headwater"), "run", GOLD, "--project", str(home)]
    found = {}
    with BackgroundProducer(events(), client=client, rate=rate):
        found["batch"] = _served([[*batch, "0"]], _batch(folder))
        shutil.rmtree(folder)
        folder.mkdir()
        found["lambda"] = _served([[*batch, str(APART)], speed], _merged(folder))
        print(json.dumps(found), file=sys.stderr, flush=True)
        found["kappa"] = _served([run], _kappa(home))
    return {name: {**of, "lines": sum(map(_lines, WRITTEN[name]))} for name, of in found.items()}


def _served(commands: Sequence[list[str]], newest: Callable[[], datetime | None]) -> dict[str, float]:
    with ExitStack() as running:
        processes = [running.enter_context(_running(command)) for command in commands]
        _first(newest)
        time.sleep(WARM_UP)
        began, used, ages = time.time(), sum(map(seconds, processes)), list[float]()
        while time.time() - began < SECONDS:
            at = newest()
            assert at is not None
            ages.append(time.time() - at.timestamp())
            time.sleep(EVERY)
        minutes = (time.time() - began) / 60
        spent = (sum(map(seconds, processes)) - used) / minutes
    ages.sort()
    at = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    told = {name: round(ages[min(len(ages) - 1, int(len(ages) * share))], 1) for name, share in at.items()}
    return {**told, "core_seconds_a_minute": round(spent, 1)}


def _first(newest: Callable[[], datetime | None]) -> None:
    """Wait for what came while it was started."""
    began = time.time()
    while (at := newest()) is None or at.timestamp() < began:
        assert time.time() - began < 600
        time.sleep(EVERY)


@contextmanager
def _running(command: list[str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen(command, cwd=lab.ROOT, stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
        assert process.poll() is None, f"{command} ended"
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.wait()


def _batch(folder: Path) -> Callable[[], datetime | None]:
    return _asked(
        on_duckdb.reader, f"SELECT max(last_event) FROM delta_scan('{folder}/gold')", folder / "gold"
    )


def _merged(folder: Path) -> Callable[[], datetime | None]:
    rows = (HERE / "merged.sql").read_text().replace("{folder}", str(folder))
    return _asked(
        on_duckdb.reader, f"SELECT max(last_event) FROM ({rows})", folder / "gold", folder / "speed"
    )


def _kappa(home: Path) -> Callable[[], datetime | None]:
    place = home / ".headwater" / "lake" / "gold" / "cpu_usage_5m" / "g0001"
    return _asked(lambda: headwater.connect(home), f"SELECT max(last_event) FROM {GOLD}", place)


def _asked(
    connect: Callable[[], duckdb.DuckDBPyConnection], sql: str, *tables: Path
) -> Callable[[], datetime | None]:
    """What asks for the newest event, by one connection that is made when the tables are there."""
    made: list[duckdb.DuckDBPyConnection] = []

    def newest() -> datetime | None:
        if not all((table / "_delta_log" / f"{0:020d}.json").exists() for table in tables):
            return None
        if not made:
            made.append(connect())
        row = made[0].execute(sql).fetchone()
        found = row[0] if row else None
        return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)

    return newest


def _lines(path: Path) -> int:
    """Lines that are neither empty nor a comment; those of a docstring aside."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "".join(part for at, part in enumerate(text.split('"""')) if at % 2 == 0)
    return sum(bool(line.strip()) and not line.strip().startswith(("#", "--")) for line in text.splitlines())
