"""A DuckDB reader's queries of silver and gold, beside the same ones of raw Parquet with the same rows.

Raw is the table's own files, named one by one; and a file that DuckDB has written of all rows.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import duckdb
from deltalake import DeltaTable

import headwater
from bench import lab
from headwater.runtime import sessions
from headwater.storage.lake import Lake

ROWS = 3_000_000
ASKED = 21  # times that each is asked, in turns
LAKE = "reading"
QUERIES = {
    "silver.cpu_metrics": "SELECT hostname, max(usage), max(event_time) FROM {} GROUP BY 1 ORDER BY 1",
    "gold.cpu_usage_5m": "SELECT hostname, count(*), max(window_start) FROM {} GROUP BY 1 ORDER BY 1",
    "gold.million_keys": "SELECT key % 10, count(*), max(n), min(total) FROM {} GROUP BY 1 ORDER BY 1",
}


def measure(rows: int = ROWS) -> dict[str, Any]:
    """{table → milliseconds of a query of it (median), of its files and of DuckDB's, and the ratios}."""
    project = lab.load(home := lab.prepare("kinds"))
    lab.preload(project, rows)
    sessions.start(project.conf)
    filled = lab.in_lake(project, LAKE, fresh=True)
    (home / "conf" / f"{LAKE}.yaml").write_text(f"kafka: embedded\nlake: {filled.conf.lake}\n")
    for table in QUERIES:
        lab.drain(filled, table)
    reader, raw = headwater.connect(home, env=LAKE), duckdb.connect(config={"threads": filled.conf.cores})
    raw.execute("SET TimeZone = 'UTC'")
    found = {}
    for table, query in QUERIES.items():
        files = DeltaTable(Lake(filled.conf.lake).place(table).path).file_uris()
        written = home / f"{table}.parquet"
        raw.execute(f"COPY (FROM read_parquet({files})) TO '{written}'")
        found[table] = _asked(
            {
                "headwater": (reader, query.format(table)),
                "its files": (raw, query.format(f"read_parquet({files})")),
                "a file of DuckDB's": (raw, query.format(f"read_parquet('{written}')")),
            }
        ) | {"files": len(files)}
        written.unlink()
    return found


def _asked(queries: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    """Each query's milliseconds, and the ratio of the first one's to the others'; all give equal rows."""
    taken: dict[str, list[float]] = {name: [] for name in queries}
    answers = {}
    for _ in range(ASKED):
        for name, (connection, sql) in queries.items():
            began = time.perf_counter()
            answers[name] = connection.execute(sql).fetchall()
            taken[name].append(1_000 * (time.perf_counter() - began))
    first, *others = queries
    if any(answers[name] != answers[first] for name in others):
        raise SystemExit(f"the rows differ: {queries[first][1]}")
    median = {name: statistics.median(each) for name, each in taken.items()}
    return {
        **{f"{name}, ms": round(each, 1) for name, each in median.items()},
        **{f"ratio to {name}": round(median[first] / median[name], 2) for name in others},
    }
