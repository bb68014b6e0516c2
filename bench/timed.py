"""Batches of a view and their parts, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from headwater.flows.compared import Compared
from headwater.flows.few import Few
from headwater.flows.grouped import Grouped
from headwater.flows.touched import Touched
from headwater.testing import Project

_PARTS: dict[str, tuple[type, str]] = {
    "reach": (Touched, "find"),
    "read": (Touched, "rows"),
    "query": (Few, "_of"),
    "groups": (Grouped, "change"),
    "difference": (Compared, "difference"),
}


def batches(case: Project, table: str, count: int, prepare: Callable[[int], None]) -> dict[str, Any]:
    """What a view's batches take, the first third to warm up: seconds (median), rows and files read, seconds
    of their parts.

    Args:
        case: the project.
        table: the view.
        count: how many batches.
        prepare: gives its inputs what the batch of a number takes.
    """
    seconds, each = [], []
    for number in range(count):
        prepare(number)
        began = time.monotonic()
        with parts() as took:
            case.step(table)
        seconds.append(time.monotonic() - began)
        each.append(took | {"commit": case.batches(table)[-1].phases["commit"]})
    last, kept = case.batches(table)[-1], each[count // 3 :]
    return {
        "seconds": round(statistics.median(seconds[count // 3 :]), 3),
        "rows_read": last.rows_read,
        "files_read": last.files_read,
        "parts": {name: round(statistics.median(took[name] for took in kept), 3) for name in kept[0]},
    }


@contextmanager
def parts() -> Iterator[dict[str, float]]:
    """{part → the seconds that it has taken so far}: which rows are touched and needed, their reading, the
    query over them, the groups, and what differs."""
    took = dict.fromkeys(_PARTS, 0.0)
    patches = [
        mock.patch.object(of, name, _timed(getattr(of, name), part, took))
        for part, (of, name) in _PARTS.items()
    ]
    for patch in patches:
        patch.start()
    try:
        yield took
    finally:
        for patch in patches:
            patch.stop()


def _timed(function: Callable[..., Any], part: str, took: dict[str, float]) -> Callable[..., Any]:
    def timed(*args: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return function(*args, **named)
        finally:
            took[part] += time.monotonic() - began

    return timed
