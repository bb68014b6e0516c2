"""What a batch of two joined streams takes beside so many rows that were there, with a bound of time and by
keys alone, and where rows wait for a partner; and how fast a backlog of both is joined."""

from __future__ import annotations

import shutil
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.views import append, source
from headwater.planner.event_time import EventTime
from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.runtime import sessions
from headwater.storage import log, ranges
from headwater.storage.identity import Identity
from headwater.testing import Project

SIZES = (1_000_000, 10_000_000, 30_000_000)
BACKLOG = 1_000_000  # rows of each stream
FILE = 250_000  # rows
NEW, BATCHES = 500, 9
STEP = 10_000  # microseconds from one row to the next
LATER = 20_000_000  # microseconds from an order to its parcel
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
_SPREAD = 6364136223846793005  # odd, so no two numbers have the same id
ORDERS, PARCELS = "silver.orders", "silver.parcels"
_PAIR = f"SELECT o.id, o.at, p.at AS sent_at FROM STREAM {ORDERS} o JOIN STREAM {PARCELS} p ON o.id = p.id"
_TIMED = "WATERMARK at DELAY OF INTERVAL 10 SECONDS"
QUERIES = {
    "within_a_minute": f"{_PAIR} AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE",
    "by_key": _PAIR,
    "waiting": f"{_PAIR} AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE".replace(
        f"o JOIN STREAM {PARCELS}", f"{_TIMED} o LEFT JOIN STREAM {PARCELS} {_TIMED}"
    ),
}
FINAL = {"waiting": " TBLPROPERTIES ('headwater.emit' = 'final')"}


def measure(*sizes: int) -> dict[str, Any]:
    """{join → {rows of each stream → of a batch of 500 new rows of each: seconds (median, and of the first),
    rows given, files and MB read}}, and rows/s of both streams of a backlog."""
    found: dict[str, Any] = {name: {} for name in QUERIES}
    for size in sizes or SIZES:
        case = _case(size, f"{size}")
        for name in QUERIES:
            _skip(case, f"gold.{name}", size)
        for name in QUERIES:
            found[name][f"{size:,}"] = _batches(case, name, size)
    case = _case(BACKLOG, "backlog")
    for name in QUERIES:
        began = time.monotonic()
        case.step(f"gold.{name}")
        found[name]["backlog_rows_per_second"] = round(2 * BACKLOG / (time.monotonic() - began))
    return found


def _case(size: int, name: str) -> Project:
    """A project with so many rows of both streams, in the order of their time; parcels 20 s after orders."""
    root = engine_folder(Path(__file__).parent.parent) / "bench-joins" / name
    shutil.rmtree(root.parent, ignore_errors=True)
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        **{
            f"{table.replace('.', '/')}.sql": f"CREATE STREAMING TABLE {table} TBLPROPERTIES ("
            "'headwater.decode' = 'json', 'headwater.schema' = 'id BIGINT, at TIMESTAMP') AS "
            "SELECT id, at, _source, ingested_at FROM STREAM bronze.raw"
            for table in (ORDERS, PARCELS)
        },
        **{
            f"gold/{each}.sql": f"CREATE STREAMING TABLE {each}{FINAL.get(each, '')} AS {query}"
            for each, query in QUERIES.items()
        },
    }
    case = Project(files, root, spark=sessions.start(Conf()))
    for begin in range(0, size, FILE):
        _append(case, ORDERS, begin, FILE, 0)
        _append(case, PARCELS, begin, FILE, LATER)
    return case


def _skip(case: Project, table: str, size: int) -> None:
    """Let a table go on as one that has read all that is there, so many rows of each stream."""
    places = (case.lake.place(name) for name in (ORDERS, PARCELS))
    read = {
        each.name: ranges.after(each.path, each.generation, log.head(each.path)).json() for each in places
    }
    target, last = case.target(table), BEGIN + (size - 1) * STEP
    reached = {f"{ORDERS}:local/raw/0": last, f"{PARCELS}:local/raw/0": last + LATER}
    seen = dict.fromkeys(reached, int(case.clock.now().timestamp() * 1_000_000))
    time = EventTime(reached, seen, last).json() if table.endswith("waiting") else {}
    identity = Identity(table, target.place.generation, target.last(table) + 1, read, event_time=time)
    target.append([], identity)


def _batches(case: Project, name: str, size: int) -> dict[str, Any]:
    seconds, table = [], f"gold.{name}"
    for number in range(BATCHES):
        begin = size + number * NEW + 1_000_000 * [*QUERIES].index(name)
        _append(case, ORDERS, begin, NEW, 0)
        _append(case, PARCELS, begin, NEW, LATER)
        began = time.monotonic()
        case.step(table)
        seconds.append(time.monotonic() - began)
    last = case.batches(table)[-1]
    return {
        "seconds": round(statistics.median(seconds[BATCHES // 3 :]), 3),
        "the first": round(seconds[0], 3),
        "rows": last.rows_out,
        "files": last.files_read,
        "megabytes": round((last.bytes_read or 0) / 1e6, 1),
    }


def _append(case: Project, name: str, begin: int, count: int, later: int) -> None:
    """One commit of a stream, in the order of its time; ids stand in no order."""
    columns = case.tables[name].stored
    numbers = pa.array(range(begin, begin + count), pa.int64())
    micros = pc.add(pc.multiply(numbers, STEP), BEGIN + later)
    rows = {
        "id": pc.bit_wise_and(pc.multiply(numbers, _SPREAD), 2**62 - 1),
        "at": micros.cast(columns.field("at").type),
        "_source": source(columns, numbers),
        "ingested_at": pa.array([case.clock.now()] * count, columns.field("ingested_at").type),
    }
    append(case, name, rows)
