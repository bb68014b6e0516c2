"""One line per kind of aggregate: rows/s from a filled silver, and how large its state, the table, is."""

from __future__ import annotations

from typing import Any

from bench import lab
from headwater.runtime import sessions
from headwater.storage import summary
from headwater.storage.lake import Lake
from headwater.storage.names import state_name

ROWS = 3_000_000
KINDS = {
    "tumbling": "gold.cpu_usage_5m",
    "sliding": "gold.sliding",
    "running_total": "gold.running_total",
    "latest_per_key": "gold.latest",
    "million_keys": "gold.million_keys",
    "final": "gold.final",
    "final_sessions": "gold.final_sessions",
    "growing_sessions": "gold.sessions",
    "ten_best_of_a_key": "gold.best",
    "million_open_windows": "gold.final_million",
    "process": "gold.runs",
}
VIEW = "gold.top"


def measure(rows: int = ROWS) -> dict[str, Any]:
    """{kind → rows/s, keys, files and bytes of its table}; for the view the seconds of one refresh."""
    project = lab.load(lab.prepare("kinds"))
    lab.preload(project, rows)
    sessions.start(project.conf)
    filled = lab.in_lake(project, "windows", fresh=True)
    lab.drain(filled, "silver.cpu_metrics")
    lab.drain(lab.in_lake(project, "warm", fresh=True), KINDS["tumbling"])
    found: dict[str, Any] = {}
    for kind, table in KINDS.items():
        seconds, taken = lab.drain(filled, table)
        places = Lake(filled.conf.lake).places()
        state = summary.of(places.get(state_name(table), places[table]))
        sizes = {"keys": state.rows, "files": state.files, "bytes": state.bytes}
        found[kind] = {"rows_per_second": round(taken / seconds), **sizes}
    seconds, _ = lab.drain(filled, VIEW)
    found["view_of_million_keys"] = {"seconds": round(seconds, 2)}
    return found
