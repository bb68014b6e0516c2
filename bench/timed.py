"""The parts of a batch of a view, timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from headwater.flows.compared import Compared
from headwater.flows.few import Few
from headwater.flows.grouped import Grouped
from headwater.flows.touched import Touched

_PARTS: dict[str, tuple[type, str]] = {
    "reach": (Touched, "find"),
    "read": (Touched, "rows"),
    "query": (Few, "_of"),
    "groups": (Grouped, "change"),
    "difference": (Compared, "difference"),
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
