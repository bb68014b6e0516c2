"""What a batch of a materialized view takes beside so many rows that have not changed, part by part, and what
computing it anew takes; and a change of a dimension that reaches a third of it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import timed
from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.query.inspect.history import version_of
from headwater.runtime import jvm, sessions
from headwater.storage import log, stored
from headwater.storage.identity import Identity
from headwater.testing import Project

SIZES = (1_000_000, 10_000_000, 30_000_000)
WARM = 200_000
CUSTOMERS = 200_000
FILE = 100_000  # rows
NEW, MOVED, BATCHES = 500, 5, 9
WIDE = CUSTOMERS * 3 // 10  # customers that change at once
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


def measure(*sizes: int) -> dict[str, Any]:
    """{view → {rows of its input → of a batch: seconds (median), rows that the query got, files read and
    rewritten, seconds of its parts; the seconds of computing all anew, and their ratio}}; and of the join
    what a change of 30% of the customers takes, and the memory of both processes then."""
    found: dict[str, Any] = {name: {} for name in QUERIES}
    _filled(WARM)
    for size in sizes or SIZES:
        case, anew = _filled(size)
        for name in QUERIES:
            batch = _measured(case, f"gold.{name}")
            ratio = round(anew[name] / batch["seconds"], 1)
            found[name][f"{size:,}"] = {**batch, "seconds_anew": anew[name], "ratio": ratio}
        found["joined"][f"{size:,}"]["of_30_percent"] = _wide(case)
    return found


def _wide(case: Project) -> dict[str, Any]:
    """A change of the dimension that reaches 30% of the joined rows."""
    append(case, LEVELS, {"customer": list(range(WIDE)), "level": [10**6] * WIDE})
    case.step(CUSTOMER)
    began = time.monotonic()
    case.step("gold.joined")
    seconds, last = time.monotonic() - began, case.batches("gold.joined")[-1]
    return {"seconds": round(seconds, 1), "rows_written": last.rows_out, "peak_gb": round(_peak() / 1e9, 1)}


def _peak() -> int:
    """The most memory that this process and its JVM have held, in bytes."""
    held = 0
    for each in ("self", jvm.pid()):
        (line,) = (x for x in Path(f"/proc/{each}/status").read_text().splitlines() if "VmHWM" in x)
        held += int(line.split()[1]) * 1024
    return held


def _filled(size: int) -> tuple[Project, dict[str, float]]:
    """A project whose orders stand in the order of their numbers, and so of time; and the seconds that each
    view took to be computed of them."""
    home = engine_folder(Path(__file__).parent.parent) / "bench-views"
    for left in home.glob("*"):  # but for where this process spills
        shutil.rmtree(left / ".headwater" / "lake" / "silver", ignore_errors=True)
        shutil.rmtree(left / ".headwater" / "lake" / "gold", ignore_errors=True)
    root = home / f"{size}-{os.getpid()}"
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/orders.py": _silver("orders", "id BIGINT, customer BIGINT, amount BIGINT"),
        "silver/levels.py": _silver("levels", "customer BIGINT, level INT"),
        "gold/customers.sql": f"CREATE STREAMING TABLE {CUSTOMER} TBLPROPERTIES ({_CLUSTERED[2:]}) AS "
        f"SELECT customer, max(level) AS level FROM STREAM {LEVELS} GROUP BY customer",
    }
    for name, (keys, more, query) in QUERIES.items():
        files[f"gold/{name}.sql"] = _VIEW.format(name=f"gold.{name}", keys=keys, more=more, query=query)
    case = Project(files, root, spark=sessions.start(Conf()))
    draw = random.Random(1)
    for begin in range(0, size, FILE):
        append(case, ORDERS, _orders(draw, begin, FILE))
    append(case, LEVELS, {"customer": list(range(CUSTOMERS)), "level": [1] * CUSTOMERS})
    case.step(CUSTOMER)
    anew = {}
    for name in QUERIES:
        began = time.monotonic()
        case.step(f"gold.{name}")
        anew[name] = round(time.monotonic() - began, 1)
    return case, anew


def _measured(case: Project, table: str) -> dict[str, Any]:
    draw = random.Random(2)

    def prepare(_: int) -> None:
        number = next(_NUMBERS)
        append(case, ORDERS, _orders(draw, 10**9 + number * NEW, NEW))
        moved = [draw.randrange(CUSTOMERS) for _ in range(MOVED)]
        append(case, LEVELS, {"customer": moved, "level": [2 + number] * MOVED})
        case.step(CUSTOMER)

    found, place = timed.batches(case, table, BATCHES, prepare), case.lake.place(table)
    rewritten = version_of(table, log.read(place.path, log.head(place.path))).files_removed
    return {**found, "files_rewritten": rewritten}


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


def source(columns: pa.Schema, offsets: pa.Array) -> pa.StructArray:
    """`_source` of rows of one partition, in a table of these columns."""
    kind, place = columns.field("_source").type, {"cluster": "local", "topic": "raw", "partition": 0}
    parts = [pa.array([place[each.name]] * len(offsets), each.type) for each in list(kind)[:-1]]
    return pa.StructArray.from_arrays([*parts, offsets], fields=list(kind))
