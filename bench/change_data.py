"""AUTO CDC: how fast a backlog of changes becomes rows and their history, and what 500 new changes take
beside so many that were there."""

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
from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.runtime import sessions
from headwater.testing import Project

BACKLOG, SIZES = 3_000_000, (1_000_000, 10_000_000, 30_000_000)
KEYS = 200_000
FILE = 250_000  # rows
NEW, BATCHES = 500, 9
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
_SPREAD = 6364136223846793005  # odd, so that keys stand in no order
TABLES = {"silver.latest": "1", "silver.history": "2"}


def measure(*sizes: int) -> dict[str, Any]:
    """{table → rows/s of a backlog; {changes that were there → seconds (median) of a batch of 500 more}}."""
    found: dict[str, Any] = {name: {} for name in TABLES}
    for name in TABLES:
        case = _case(BACKLOG, f"backlog-{name}")
        began = time.monotonic()
        case.step(f"{name}_changes", name)
        found[name]["backlog_rows_per_second"] = round(BACKLOG / (time.monotonic() - began))
    for size in sizes or SIZES:
        case = _case(size, f"{size}")
        for name in TABLES:
            case.step(f"{name}_changes", name)
            found[name][f"{size:,}"] = _batches(case, name, size)
    return found


def _case(size: int, name: str) -> Project:
    """A project with so many changes, none of which is of the table yet."""
    root = engine_folder(Path(__file__).parent.parent) / "bench-changes" / name
    shutil.rmtree(root.parent, ignore_errors=True)
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/said.sql": "CREATE STREAMING TABLE silver.said TBLPROPERTIES ('headwater.decode' = 'json', "
        "'headwater.schema' = 'id BIGINT, name STRING, amount BIGINT, at TIMESTAMP, gone BOOLEAN') AS "
        "SELECT id, name, amount, at, gone, _source FROM STREAM bronze.raw",
        **{
            f"{table.replace('.', '/')}.sql": f"CREATE STREAMING TABLE {table} FLOW AUTO CDC "
            "FROM STREAM silver.said KEYS (id) APPLY AS DELETE WHEN gone SEQUENCE BY at "
            f"COLUMNS (id, name, amount) STORED AS SCD TYPE {scd}"
            for table, scd in TABLES.items()
        },
    }
    case = Project(files, root, spark=sessions.start(Conf()))
    for begin in range(0, size, FILE):
        _append(case, begin, FILE)
    return case


def _batches(case: Project, name: str, size: int) -> dict[str, Any]:
    seconds = []
    for number in range(BATCHES):
        _append(case, size + number * NEW + 1_000_000 * [*TABLES].index(name), NEW)
        began = time.monotonic()
        case.step(f"{name}_changes", name)
        seconds.append(time.monotonic() - began)
    last = case.batches(name)[-1]
    return {
        "seconds": round(statistics.median(seconds[BATCHES // 3 :]), 3),
        "view": round(last.seconds, 3),
        "files": last.files_read,
        "megabytes": round((last.bytes_read or 0) / 1e6, 1),
    }


def _append(case: Project, begin: int, count: int) -> None:
    """One commit of changes, in the order of their time."""
    columns = case.tables["silver.said"].stored
    numbers = pa.array(range(begin, begin + count), pa.int64())
    ids = pc.bit_wise_and(pc.multiply(numbers, _SPREAD), 2**62 - 1)
    ids = pc.subtract(ids, pc.multiply(pc.divide(ids, KEYS), KEYS))
    rows = {
        "id": ids,
        "name": pc.binary_join_element_wise("customer ", pc.cast(ids, pa.string()), ""),
        "amount": numbers,
        "at": pc.add(pc.multiply(numbers, 1_000), BEGIN).cast(columns.field("at").type),
        "gone": pc.equal(pc.bit_wise_and(numbers, 63), 0),
        "_source": source(columns, numbers),
    }
    append(case, "silver.said", rows)
