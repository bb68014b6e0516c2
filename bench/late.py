"""What late rows cost a table of windows that has grown large: its rows apart by their time, and together."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import layers
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

ROWS, HOSTS, BATCHES = (10_000, 100_000, 1_000_000, 5_000_000), 50, 100
LATE = 0.05  # of the batches have one row of a window of any age
COLUMNS = pa.schema([("since", pa.timestamp("us", "UTC")), ("host", pa.string()), ("n", pa.int64())])
COUNTS = Aggregate((Output("since", "key", "start"), Output("host", "key"), Output("n", "count")), "time")


def measure() -> dict[str, Any]:
    """{rows of the table → {rows apart or not → milliseconds of a merge: median and mean}}."""
    return {str(rows): {"apart": _merges(rows), "together": _merges(rows, apart=False)} for rows in ROWS}


def _merges(rows: int, *, apart: bool = True) -> dict[str, float]:
    copied, draw = layers.COPIED, random.Random(rows)
    layers.COPIED = copied if apart else 2**62
    try:
        with tempfile.TemporaryDirectory() as folder:
            taken = list(
                _take(Target(Lake(Path(folder)).create("gold.x", COLUMNS, properties={})), rows, draw)
            )
    finally:
        layers.COPIED = copied
    return {"median": round(statistics.median(taken), 1), "mean": round(statistics.mean(taken), 1)}


def _take(target: Target, rows: int, draw: random.Random) -> Any:
    windows = rows // HOSTS  # that are over; the batches are all of the next one
    _merge(target, [(window, host) for window in range(windows) for host in range(HOSTS)])
    for _ in range(BATCHES):
        keys = [(windows, host) for host in range(HOSTS)]
        late = [(draw.randrange(windows), 0)] if draw.random() < LATE else []
        began = time.perf_counter()
        _merge(target, keys + late)
        yield 1_000 * (time.perf_counter() - began)
        target.checkpoint()


def _merge(target: Target, keys: list[tuple[int, int]]) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    since = pa.array(
        [first + timedelta(minutes=5 * window) for window, _ in keys], COLUMNS.field("since").type
    )
    batch = pa.table([since, [f"host-{host}" for _, host in keys], [1] * len(keys)], schema=COLUMNS)
    target.merge(batch, COUNTS, Identity("gold.x", 1, target.last("gold.x") + 1, {}))
