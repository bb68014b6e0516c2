"""Processes without a stream: `drive` calls one with the rows of a list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headwater.common import times
from headwater.project.definitions import Table
from headwater.project.process import Keyed, Process, Row, Stream, advance


@dataclass(frozen=True)
class Driven:
    """What a process makes of rows.

    Attributes:
        rows: those that it gives, key by key.
        keys: {values of the key columns → what is kept of it}; keys of which nothing is kept are left out.
    """

    rows: list[Row]
    keys: dict[tuple[Any, ...], Keyed] = field(default_factory=dict)


def drive(
    table: Table,
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    *,
    until: datetime | None = None,
) -> Driven:
    """Call a table's process with rows, as its flow does, without a stream: what a test of it needs.

    Args:
        table: declared with `headwater.process`.
        rows: its source's rows, in any order, or {name of a stream → its rows}; event times are in UTC. None
            of them counts as late.
        until: timers and ends of state before this time come; by default those up to the last row.

    Raises:
        ValueError: the table has no process, or not such a stream.
    """
    from headwater.project.watermarks import microseconds

    process = table.process
    if process is None:
        raise ValueError(f"{table.name} has no process")
    ttl = timedelta(microseconds=microseconds(process.ttl, table)) if process.ttl else None
    told = [*_told(process, rows if isinstance(rows, Mapping) else {"": rows})]
    groups: dict[tuple[Any, ...], list[tuple[datetime, str, Row]]] = defaultdict(list)
    for at, stream, row in sorted(told, key=lambda each: each[0]):
        groups[tuple(row[key] for key in stream.keys)].append((at, stream.name, row))
    last = max((at for at, _, _ in told), default=times.EPOCH)
    upto = max(until or last, last) + timedelta(microseconds=1)
    found = Driven([])
    for key, of_key in groups.items():
        keyed = Keyed(dict(zip(process.keys, key, strict=True)))
        found.rows.extend(advance(process, keyed, of_key, upto, ttl))
        if keyed.state is not None or keyed.timer is not None:
            found.keys[key] = keyed
    return found


def _told(process: Process, rows: Mapping[str, Sequence[Row]]) -> Iterator[tuple[datetime, Stream, Row]]:
    """Event time, stream and row, stream by stream: so rows of the same time come in the order of these."""
    known = [stream.name for stream in process.streams]
    if not {*rows} <= {*known}:
        raise ValueError(f"rows of {', '.join(rows)}; the streams are {', '.join(known)}")
    for stream in process.streams:
        for row in rows.get(stream.name, ()):
            yield row[str(stream.event_time)], stream, row
