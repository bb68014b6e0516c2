"""Final windows from history, with late readings and without: what telling and keeping them costs."""

from __future__ import annotations

import statistics
from typing import Any

from bench import lab
from headwater.connectors.produce import Faults
from headwater.project.load import Project
from headwater.runtime import sessions
from headwater.storage import summary
from headwater.storage.lake import Lake
from headwater.storage.names import late_name

ROWS = 2_000_000
SHARE = 0.07  # of the readings that come after their window
TURNS, REPEATS = 2, 3
FINAL = "gold.final"


def measure(rows: int = ROWS) -> dict[str, Any]:
    """{rows/s with late readings and without (median, runs), the share that was late, and the ratio}."""
    project = lab.load(lab.prepare("kinds"))
    sessions.start(project.conf)
    rates: dict[str, list[int]] = {"late": [], "none": []}
    late = 0
    for turn in range(TURNS):
        for name, share in (("late", SHARE), ("none", 0.0)):  # so the topic is in the end as others have it
            lab.refill(project, "iot", rows, Faults(late=share))
            for repeat in range(REPEATS):
                filled, rate = _drained(project)
                if turn or repeat:  # the first one warms up
                    rates[name].append(rate)
            if share:
                late = summary.of(Lake(filled.conf.lake).place(late_name(FINAL))).rows
    found = {name: round(statistics.median(runs)) for name, runs in rates.items()}
    return {
        **{name: {"rows_per_second": found[name], "runs": runs} for name, runs in rates.items()},
        "share_late": round(late / rows, 3),
        "ratio": round(found["late"] / found["none"], 2),
    }


def _drained(project: Project) -> tuple[Project, int]:
    """A lake whose finals have just been drained from a filled silver, and at what rate."""
    filled = lab.in_lake(project, "finals", fresh=True)
    lab.drain(filled, "silver.cpu_metrics")
    seconds, taken = lab.drain(filled, FINAL)
    return filled, round(taken / seconds)
