"""Freshness against the rate of events: `freshness` at each rate in a process of its own, and a picture."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import chart, lab

RATES = (1_000, 3_000, 10_000, 30_000, 100_000)  # events per second that are asked for
TURNS = 3  # of all rates, so that an hour in which the machine is slow is not one rate's
SECONDS = 30  # of sampling
SHOWN = ("p50", "p99")
READERS = ("alert", "bronze", "silver", "gold")


def measure(seconds: int = SECONDS, turns: int = TURNS) -> dict[str, Any]:
    """{rate → the figures of `freshness`, each the median of the turns}, and where the picture is."""
    taken: dict[int, list[dict[str, Any]]] = {rate: [] for rate in RATES}
    for _ in range(turns):
        for rate in RATES:
            taken[rate].append(one(rate, seconds))
    found = {rate: middle(each) for rate, each in taken.items()}
    return {**{str(rate): each for rate, each in found.items()}, "picture": str(picture([*found.values()]))}


def picture(found: list[dict[str, Any]]) -> Path:
    """Draw the figures over the events that came: of the last rate as many as the cores can send."""
    lines = {
        (name, share): {each["events per second"]: each[name][share] for each in found}
        for name in READERS
        for share in SHOWN
    }
    return chart.draw("freshness", lines, x="events per second", y="seconds from event to reader")


def one(rate: int, seconds: int) -> dict[str, Any]:
    """The figures of one rate. What it says of itself goes to standard error."""
    part = f"freshness:{rate},{seconds}"
    done = subprocess.run(
        [sys.executable, "-m", "bench", part], cwd=lab.ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)[part]
    return found


def middle(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Of figures that were taken several times the medians."""
    first = turns[0]
    return {
        name: middle([turn[name] for turn in turns])
        if isinstance(value, dict)
        else round(statistics.median(turn[name] for turn in turns), 3)
        for name, value in first.items()
    }
