"""Ours beside peers, on the same embedded broker and the same topics, in one run.

PyFlink has two slots, a checkpoint every ten seconds, and what it writes is committed to tables as ours is.
The medallion is made by Spark alone, too. Beside Nexmark's queries we keep bronze and silver tables of what
they read; PyFlink keeps the answer alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pyarrow.dataset as ds

from bench import lab, nexmark
from bench.nexmark.answers import INTERVAL, difference
from bench.peers import flink, medallion
from bench.peers.queries import QUERIES, sources
from headwater.connectors import kafka
from headwater.project.paths import engine_folder

ROWS = 3_000_000


def measure(rows: int = ROWS, events: int = nexmark.EVENTS) -> dict[str, Any]:
    """{medallion, nexmark → our rate, the peers' and the ratios; of Nexmark their geometric mean}: no ratio
    where the rows differ."""
    folder = engine_folder(lab.ROOT) / "bench-peers"
    found: dict[str, Any] = {}
    if events:
        found["nexmark"] = _nexmark(events, folder / "nexmark")
    if rows:
        found = {"medallion": medallion.measure(rows, folder / "medallion"), **found}
    return found


def _nexmark(count: int, folder: Path) -> dict[str, Any]:
    """{query → events/s of both, the ratio, where PyFlink wrote, and whether both are DuckDB's answer}."""
    project, database = nexmark.filled(count)
    servers = kafka.ensure_running(project.root, project.conf)
    warmed_up = QUERIES["q20"]._replace(name="warm")
    jobs = {name: [each] for name, each in {"warm": warmed_up, **QUERIES}.items()}
    theirs = flink.run(folder, sources(servers), jobs)
    ours = nexmark.drained(project, database)
    found: dict[str, Any] = {}
    for name, query in QUERIES.items():
        ran, mine = theirs[name], ours[name]
        if isinstance(ran, str):
            print(f"PyFlink, {name}: {ran}", file=sys.stderr, flush=True)
            continue
        rows = ds.dataset(flink.place(folder, name), format="parquet").to_table()
        wrong = difference(database, name, rows)
        if wrong:
            print(f"PyFlink, {name}: {wrong}", file=sys.stderr, flush=True)
        found[name] = {"written": "Paimon" if query.key else "Parquet", "right": mine["right"] and not wrong}
        if found[name]["right"]:
            found[name] |= _compared(mine["events_per_second"], mine["events"] / ran.seconds)
    ratios = (each.get("ratio") for name, each in found.items() if name != INTERVAL)
    mean = geometric_mean(filter(None, ratios))
    return {**found, "geometric_mean_of_ratios": round(mean, 2)}


def _compared(our_rate: float, their_rate: float) -> dict[str, float]:
    """Two rates and their ratio: above 1 where we are faster."""
    return {"ours": round(our_rate), "pyflink": round(their_rate), "ratio": round(our_rate / their_rate, 2)}
