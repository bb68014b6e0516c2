"""A view of events, each with the version of a history that was valid at its time: what 500 new events and
five new versions take beside so many events, part by part, and what computing it anew takes."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench import timed
from bench.views import append, source
from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.runtime import sessions
from headwater.testing import Project

SIZES = (1_000_000, 10_000_000, 30_000_000)
ACCOUNTS, VERSIONS = 200_000, 2  # each account's, before the first event's time
FILE = 250_000  # rows
NEW, MOVED, BATCHES = 500, 5, 9
STEP = 10_000  # microseconds from one event to the next
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
_SPREAD = 6364136223846793005  # odd, so that accounts stand in no order
EVENTS, SAID, HISTORY, VIEW = "silver.events", "silver.said", "silver.history", "gold.matched"
_FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/events.sql": f"CREATE STREAMING TABLE {EVENTS} TBLPROPERTIES ('headwater.decode' = 'json', "
    "'headwater.schema' = 'id BIGINT, account BIGINT, at TIMESTAMP') AS "
    "SELECT id, account, at, _source FROM STREAM bronze.raw",
    "silver/said.sql": f"CREATE STREAMING TABLE {SAID} TBLPROPERTIES ('headwater.decode' = 'json', "
    "'headwater.schema' = 'account BIGINT, level BIGINT, at TIMESTAMP') AS "
    "SELECT account, level, at, _source FROM STREAM bronze.raw",
    "silver/history.sql": f"CREATE STREAMING TABLE {HISTORY} FLOW AUTO CDC FROM STREAM {SAID} KEYS (account) "
    "SEQUENCE BY at COLUMNS (account, level) STORED AS SCD TYPE 2",
    "gold/matched.sql": f"CREATE MATERIALIZED VIEW {VIEW} TBLPROPERTIES ('headwater.keys' = 'id') AS "
    f"SELECT e.id, e.account, e.at, h.level FROM {EVENTS} e "
    f"LEFT JOIN {HISTORY} FOR SYSTEM_TIME AS OF e.at AS h ON e.account = h.account",
}


def measure(*sizes: int) -> dict[str, Any]:
    """{events that were there → of a batch: seconds (median), rows and files read, seconds of its parts; and
    the seconds of computing all anew, and their ratio}."""
    return {f"{size:,}": _measured(size) for size in sizes or SIZES}


def _measured(size: int) -> dict[str, Any]:
    home = engine_folder(Path(__file__).parent.parent) / "bench-as-of"
    shutil.rmtree(home, ignore_errors=True)
    case = Project(_FILES, home / f"{size}-{os.getpid()}", spark=sessions.start(Conf()))
    for version in range(VERSIONS):
        accounts = pa.array(range(ACCOUNTS), pa.int64())
        _append(case, SAID, accounts, pa.repeat(BEGIN - (VERSIONS - version) * 10**9, ACCOUNTS))
    for begin in range(0, size, FILE):
        _events(case, begin, FILE)
    case.step(f"{HISTORY}_changes", HISTORY)
    began = time.monotonic()
    case.step(VIEW)
    anew = round(time.monotonic() - began, 1)

    def prepare(number: int) -> None:
        begin = size + number * NEW
        _events(case, begin, NEW)
        moved = pa.array([(number * MOVED + at) * 7919 % ACCOUNTS for at in range(MOVED)], pa.int64())
        _append(case, SAID, moved, pa.repeat(BEGIN + begin * STEP, MOVED))
        case.step(f"{HISTORY}_changes", HISTORY)

    batch = timed.batches(case, VIEW, BATCHES, prepare)
    return {**batch, "seconds_anew": anew, "ratio": round(anew / batch["seconds"], 1)}


def _events(case: Project, begin: int, count: int) -> None:
    """One commit of events, in the order of their time."""
    numbers = pa.array(range(begin, begin + count), pa.int64())
    spread = pc.bit_wise_and(pc.multiply(numbers, _SPREAD), 2**62 - 1)
    accounts = pc.subtract(spread, pc.multiply(pc.divide(spread, ACCOUNTS), ACCOUNTS))
    _append(case, EVENTS, accounts, pc.add(pc.multiply(numbers, STEP), BEGIN), id=numbers)


_OFFSETS = itertools.count()


def _append(case: Project, name: str, accounts: pa.Array, micros: pa.Array, **more: pa.Array) -> None:
    """One commit of events or changes of accounts, at these microseconds since the epoch."""
    columns = case.tables[name].stored
    offsets = pa.array([next(_OFFSETS) for _ in accounts], pa.int64())
    rows = {
        **more,
        "account": accounts,
        "at": pa.array(micros, pa.int64()).cast(columns.field("at").type),
        "_source": source(columns, offsets),
    }
    append(case, name, rows if "id" in more else {**rows, "level": offsets})
