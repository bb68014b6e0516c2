"""How flows are shown to people: a table that fits a terminal, a line of each, and what a run has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.common import durations, listings
from headwater.common.progress import FlowState

if TYPE_CHECKING:
    from headwater.query.inspect.status import Status


def table(flows: Sequence[Status], width: int, height: int) -> list[tuple[str, str]]:
    """The lines of a table, each with the state of its flow; the first is the header.

    Where there are more flows than lines, those that have nothing to do are left out, and counted.
    """
    shown = flows
    if len(flows) >= height:
        shown = [each for each in flows if not _idle(each)]
    columns = ["flow", "rows", "rows/s", "lag", "age"]
    cells = [
        [each.flow, _count(each.rows), _count(round(each.rows_per_second)), _count(each.lag), _age(each.age)]
        for each in shown
    ]
    if any(each.quarantined for each in flows):
        _add(columns, cells, "quarantined", [_count(each.quarantined) for each in shown])
    if any(each.state != "running" for each in shown):
        _add(columns, cells, "state", [each.state for each in shown])
    lines = _lines(columns, cells, width)
    found = list(zip(lines, ["", *(each.state for each in shown)], strict=True))
    if len(shown) < len(flows):
        found.append((f"and {len(flows) - len(shown)} that have nothing to do", "done"))
    return found


def sentence(flow: Status) -> str:
    """A flow in one line."""
    said = [f"{flow.rows:,} rows", f"{flow.rows_per_second:,.0f}/s"]
    said += [f"lag {flow.lag:,}"] if flow.lag is not None else []
    said += [f"age {_age(flow.age)}"] if flow.age is not None else []
    said += [f"{flow.quarantined:,} quarantined"] if flow.quarantined else []
    said += [flow.state] if flow.state != "running" else []
    return f"{flow.flow}: {', '.join(said)}"


def summary(flows: Mapping[str, FlowState], width: int = listings.WIDE) -> list[str]:
    """What a run has done, flow by flow, and how to see the rows that it has held back."""
    if not flows:
        return []
    columns, states = ["flow", "read", "written"], list(flows.values())
    cells = [[name, f"{flow.rows_in:,}", f"{flow.rows_out:,}"] for name, flow in flows.items()]
    for name in ("dropped", "quarantined"):
        if any(counts := [getattr(flow, name) for flow in states]):
            _add(columns, cells, name, [f"{count:,}" for count in counts])
    if any(flow.state not in ("running", "done") for flow in states):
        _add(columns, cells, "state", ["" if flow.state == "done" else flow.state for flow in states])
    held = [name for name, flow in flows.items() if flow.quarantined]
    hints = [f"headwater quarantine show {name}" for name in held]
    return _lines(columns, cells, width) + (["", "Rows were held back:", *hints] if held else [])


def elapsed(seconds: float) -> str:
    """A span in whole seconds: `12s`, `1m30s`, `2h5m`."""
    return durations.text(int(seconds) * 1_000_000)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table as lines of text, the header first; a row whose name leaves no room for the rest is two lines.

    A `Listing` would leave columns out for the longest name of all, and rich has no cell that spans columns.

    Args:
        columns: the first is that of the names, which are never cut; the others go to the right.
        rows: a cell for each column.
        width: how many columns of characters there are.
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)][1:]
    room = width - sum(each + 2 for each in widths)
    names = max((len(row[0]) for row in (columns, *rows) if len(row[0]) <= room), default=0)
    found = []
    for name, *cells in (columns, *rows):
        rest = "".join(f"  {cell:>{each}}" for cell, each in zip(cells, widths, strict=True))
        line = f"{name:{names}}{rest}" if len(name) <= names else f"{name}\n{'':{names}}{rest}"
        found.append(line.rstrip())
    return found


def _add(columns: list[str], cells: list[list[str]], name: str, column: Sequence[str]) -> None:
    columns.append(name)
    for row, cell in zip(cells, column, strict=True):
        row.append(cell)


def _idle(flow: Status) -> bool:
    return flow.state in ("running", "done") and not flow.rows_per_second and not flow.lag


def _count(number: int | None) -> str:
    """In at most seven characters below a hundred billion."""
    if number is None:
        return ""
    for unit, size in (("G", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:,.1f}{unit}"
    return f"{number:,}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.1f}s" if seconds < 60 else elapsed(seconds)
