"""What a batch of a materialized view takes beside so many rows that have not changed: by the rows that
changes touch, and computed anew."""

from __future__ import annotations

import itertools
import random
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.runtime import sessions
from headwater.storage import stored
from headwater.storage.identity import Identity
from headwater.testing import Project

SIZES = (1_000_000, 3_000_000)
CUSTOMERS = 200_000
FILE = 100_000  # rows
NEW, MOVED, BATCHES = 500, 5, 9
_NUMBERS = itertools.count()  # of batches
ORDERS, LEVELS, CUSTOMER = "silver.orders", "silver.levels", "gold.customers"
_SILVER = """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("{columns}"))
def {name}(raw):
    return raw.select({selected})
"""
_VIEW = "CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ('headwater.keys' = '{keys}'{more}) AS {query}"
_CLUSTERED = ", 'headwater.cluster_by' = 'customer'"
QUERIES = {  # name → (keys, more properties, query)
    "joined": (
        "id",
        "",
        f"SELECT o.id, o.amount, c.level FROM {ORDERS} o LEFT JOIN {CUSTOMER} c ON o.customer = c.customer",
    ),
    "groups": (
        "customer",
        _CLUSTERED,
        "SELECT customer, count(DISTINCT amount) AS amounts, median(amount) AS half "
        f"FROM {ORDERS} GROUP BY customer",
    ),
    "ten": (
        "region",
        "",
        "SELECT customer % 10 AS region, sum(amount) AS amount, count(DISTINCT customer) AS customers, "
        f"max(amount) AS most FROM {ORDERS} GROUP BY customer % 10",
    ),
    "averages": (
        "region",
        "",
        "SELECT region, avg(most) AS most FROM (SELECT customer, customer % 10 AS region, "
        f"max(amount) AS most FROM {ORDERS} GROUP BY customer, customer % 10) GROUP BY region",
    ),
    "ranks": (
        "customer, place",
        _CLUSTERED,
        "SELECT customer, id, place FROM (SELECT customer, id, row_number() OVER (PARTITION BY customer "
        f"ORDER BY id DESC) AS place FROM {ORDERS}) WHERE place <= 3",
    ),
}


def measure() -> dict[str, Any]:
    """{view → {rows of its input → of a batch: seconds (median), rows that the query got, files read; and the
    seconds of computing all anew}}."""
    found: dict[str, Any] = {name: {} for name in QUERIES}
    for size in SIZES:
        case = _filled(size)
        for name in QUERIES:
            touched, whole = _measured(case, f"gold.{name}", BATCHES), _measured(case, f"gold.{name}_anew", 1)
            found[name][f"{size:,}"] = {**touched, "seconds_anew": whole["seconds"]}
    return found


def _filled(size: int) -> Project:
    """A project whose orders stand in the order of their numbers, and so of time."""
    root = engine_folder(Path(__file__).parent.parent) / "bench-views"
    shutil.rmtree(root, ignore_errors=True)
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/orders.py": _silver("orders", "id BIGINT, customer BIGINT, amount BIGINT"),
        "silver/levels.py": _silver("levels", "customer BIGINT, level INT"),
        "gold/customers.sql": f"CREATE STREAMING TABLE {CUSTOMER} TBLPROPERTIES ({_CLUSTERED[2:]}) AS "
        f"SELECT customer, max(level) AS level FROM STREAM {LEVELS} GROUP BY customer",
    }
    for name, (keys, more, query) in QUERIES.items():
        for table, full in ((f"gold.{name}", ""), (f"gold.{name}_anew", ", 'headwater.refresh' = 'full'")):
            text = _VIEW.format(name=table, keys=keys, more=more + full, query=query)
            files[f"{table.replace('.', '/')}.sql"] = text
    case = Project(files, root, spark=sessions.start(Conf()))
    draw = random.Random(1)
    for begin in range(0, size, FILE):
        append(case, ORDERS, _orders(draw, begin, FILE))
    append(case, LEVELS, {"customer": list(range(CUSTOMERS)), "level": [1] * CUSTOMERS})
    case.step(CUSTOMER, *(f"gold.{name}{more}" for name in QUERIES for more in ("", "_anew")))
    return case


def _measured(case: Project, table: str, batches: int) -> dict[str, Any]:
    draw, seconds = random.Random(2), []
    for number in itertools.islice(_NUMBERS, batches):
        append(case, ORDERS, _orders(draw, 10**9 + number * NEW, NEW))
        moved = [draw.randrange(CUSTOMERS) for _ in range(MOVED)]
        append(case, LEVELS, {"customer": moved, "level": [2 + number] * MOVED})
        case.step(CUSTOMER)
        began = time.monotonic()
        case.step(table)
        seconds.append(time.monotonic() - began)
    last = case.batches(table)[-1]
    return {
        "seconds": round(statistics.median(seconds[batches // 3 :]), 3),
        "rows_read": last.rows_read,
        "files_read": last.files_read,
    }


def _silver(name: str, columns: str) -> str:
    names = [column.split()[0] for column in columns.split(", ")]
    return _SILVER.format(
        name=name, columns=columns, selected=", ".join(f'"{each}"' for each in [*names, "_source"])
    )


def _orders(draw: random.Random, begin: int, count: int) -> dict[str, list[int]]:
    return {
        "id": list(range(begin, begin + count)),
        "customer": [draw.randrange(CUSTOMERS) for _ in range(count)],
        "amount": [draw.randrange(1000) for _ in range(count)],
    }


def append(case: Project, name: str, rows: Mapping[str, Any]) -> None:
    """One commit of a table."""
    target = case.target(name)
    columns = case.tables[name].stored
    sequence = target.last(name) + 1
    files = target.write(stored.fitted(pa.table(rows), columns), f"{sequence:012d}")
    target.append(files, Identity(name, target.place.generation, sequence, {}))
