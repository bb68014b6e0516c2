"""Processes without a stream: `drive` calls one with the rows of a list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headwater.common import times
from headwater.project.definitions import Table
from headwater.project.process import Keyed, Row, advance


@dataclass(frozen=True)
class Driven:
    """What a process makes of rows.

    Attributes:
        rows: those that it gives, key by key.
        keys: {values of the key columns → what is kept of it}; keys of which nothing is kept are left out.
    """

    rows: list[Row]
    keys: dict[tuple[Any, ...], Keyed] = field(default_factory=dict)


def drive(table: Table, rows: Sequence[Row], *, until: datetime | None = None) -> Driven:
    """Call a table's process with rows, as its flow does, without a stream: what a test of it needs.

    Args:
        table: declared with `headwater.process`.
        rows: its source's rows, in any order; event times are in UTC. None of them counts as late.
        until: timers and ends of state before this time come; by default those up to the last row.

    Raises:
        ValueError: the table has no process.
    """
    from headwater.project.watermarks import microseconds

    process = table.process
    if process is None or table.event_time is None:
        raise ValueError(f"{table.name} has no process")
    ttl = timedelta(microseconds=microseconds(process.ttl, table)) if process.ttl else None
    groups: dict[tuple[Any, ...], list[tuple[datetime, Row]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[table.event_time or ""]):
        groups[tuple(row[key] for key in process.keys)].append((row[table.event_time], row))
    last = max((row[table.event_time] for row in rows), default=times.EPOCH)
    upto = max(until or last, last) + timedelta(microseconds=1)
    found = Driven([])
    for key, of_key in groups.items():
        keyed = Keyed(dict(zip(process.keys, key, strict=True)))
        found.rows.extend(advance(process, keyed, of_key, upto, ttl))
        if keyed.state is not None or keyed.timer is not None:
            found.keys[key] = keyed
    return found
