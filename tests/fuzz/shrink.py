"""A case that fails, made small: whatever can go while it fails in the same way goes."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

from fuzz.make import Case
from fuzz.processes import run
from fuzz.words import sources, topic


def shrunk(case: Case, error: Exception, seconds: float) -> tuple[Case, str]:
    """The smallest case found, and how it fails.

    Args:
        case: one that fails.
        error: by this.
        seconds: how long to look.
    """
    until, why, like = time.monotonic() + seconds, _text(error), _kind(error)
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for smaller in _smaller(case):
            if time.monotonic() > until:
                break
            try:
                run(smaller)
            except Exception as e:
                if _kind(e) == like:
                    case, why, progress = smaller, _text(e), True
                    break
    return case, why


def _smaller(case: Case) -> Iterator[Case]:
    """The same case with a piece less, large pieces first."""
    for at in reversed(range(len(case["tables"]))):
        gone = _without_table(case, case["tables"][at]["name"])
        if gone["tables"]:
            yield gone
    for part in _cuts(len(case["steps"])):
        yield _with(case, ["steps"], [each for at, each in enumerate(case["steps"]) if at not in part])
    for number, step in enumerate(case["steps"]):
        records = step.get("records", [])
        for part in _cuts(len(records)):
            kept = [each for at, each in enumerate(records) if at not in part]
            if kept:
                yield _with(case, ["steps", number, "records"], kept)
    for number, table in enumerate(case["tables"]):
        for name in ("outputs", "keys", "rules"):
            pieces = table.get(name, ())
            if len(pieces) > (name == "outputs") and not _is_read(case, table["name"]):
                for at in range(len(pieces)):
                    yield _with(case, ["tables", number, name], [*pieces[:at], *pieces[at + 1 :]])
        for name in ("where", "rows"):
            if table.get(name):
                yield _with(case, ["tables", number, name], None)
    for number, step in enumerate(case["steps"]):
        for at, record in enumerate(step.get("records", [])):
            for column in record.get("row") or {}:
                row = {name: value for name, value in record["row"].items() if name != column}
                yield _with(case, ["steps", number, "records", at, "row"], row)


def _cuts(count: int) -> Iterator[range]:
    """Ranges to leave out: halves, quarters, and so on."""
    size = count
    while size:
        yield from (range(at, min(at + size, count)) for at in range(0, count, size))
        size //= 2


def _without_table(case: Case, name: str) -> Case:
    gone = {name}
    for table in case["tables"]:
        if gone & set(sources(table)):
            gone.add(table["name"])
    tables = [table for table in case["tables"] if table["name"] not in gone]
    bronze = {topic(table) for table in tables}
    steps = [step for step in case["steps"] if step.get("topic") in (None, *bronze)]
    return {**case, "tables": tables, "steps": [step for step in steps if step.get("table") not in gone]}


def _is_read(case: Case, name: str) -> bool:
    return any(name in sources(table) for table in case["tables"])


def _with(case: Case, path: list[Any], value: Any) -> Case:
    """A copy of the case with another value at a place."""
    found = copy.deepcopy(case)
    at: Any = found
    for each in path[:-1]:
        at = at[each]
    at[path[-1]] = value
    return found


def _kind(error: Exception) -> str:
    """What tells failures apart: what differs, or the code of the error."""
    what = str(error).partition(":")[0] if isinstance(error, AssertionError) else getattr(error, "code", "")
    return f"{type(error).__name__} {what}"


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
