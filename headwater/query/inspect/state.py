"""What a table keeps between batches: its open windows or groups, and how far its event time has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headwater import query
from headwater.common import times
from headwater.common.scratch import quoted
from headwater.errors import CommitError, LakeError
from headwater.planner.event_time import NEVER, EventTime
from headwater.project.load import Project
from headwater.project.watermarks import tolerance
from headwater.query.result import Result
from headwater.storage import log, summary
from headwater.storage.lake import Lake, Place
from headwater.storage.names import late_name, state_name


@dataclass(frozen=True)
class Partition:
    """One of Kafka's.

    Attributes:
        name: `cluster/topic/number`.
        reached: its greatest event time (UTC).
        seen: when its newest row was ingested (UTC).
        idle: whether the windows that closed last did not wait for it.
    """

    name: str
    reached: datetime | None
    seen: datetime | None
    idle: bool


@dataclass(frozen=True)
class Kept:
    """What a table keeps.

    Attributes:
        table: its name.
        kept_in: the table that is its state: that of its open windows, or itself; "": rows that wait lie in
            the tables that it reads.
        keys: how many windows or groups that holds.
        bytes: their size as Parquet.
        watermark: rows before it are late, whichever partition they come from (UTC); None where no row is
            ever late, or none has come.
        late: how many rows came too late, once for each window; None where none can.
        partitions: how far each partition has come.
        error: of a broken table, what is wrong and what to do; then nothing else is known.
    """

    table: str
    kept_in: str
    keys: int | None
    bytes: int
    watermark: datetime | None
    late: int | None
    partitions: tuple[Partition, ...]
    error: str = ""


def kept(project: Project) -> list[Kept]:
    """Of each table that keeps something between batches, and has been written, what that is."""
    places, found = Lake(project.conf.lake).places(), []
    for name in project.tables:
        try:
            keeps = of(project, places, name)
        except CommitError as e:
            keeps = Kept(name, "", None, 0, None, None, (), str(e))
        if keeps is not None:
            found.append(keeps)
    return found


def of(project: Project, places: Mapping[str, Place], name: str) -> Kept | None:
    """What a table keeps; None where it keeps nothing, or nothing yet.

    Raises:
        CommitError: it is broken.
    """
    table = project.tables.get(name)
    state = places.get(state_name(name)) or places.get(name)
    if table is None or state is None or (table.view and state_name(name) not in places):
        return None
    if state_name(name) not in places and not summary.changes_in_place(state) and not table.event_times:
        return None
    held, late = None if table.event_times else summary.of(state), places.get(late_name(name))
    delay = tolerance(table)
    time = EventTime.parse(log.flows(places[name].path).get(name, {}).get("event_time")).by(delay)
    awaited = [each for each in time.reached if each not in time.idle]
    low = max(time.low(awaited), time.closed)
    return Kept(
        table=name,
        kept_in=state.name if held else "",
        keys=held.rows if held else 0,
        bytes=held.bytes if held else 0,
        watermark=_at(low - delay) if low > NEVER else None,
        late=summary.of(late).rows if late else None,
        partitions=tuple(
            Partition(each, _at(most), _at(time.seen[each]), each in time.idle)
            for each, most in sorted(time.reached.items())
        ),
    )


def rows(project: Project, table: str, keys: Mapping[str, Any], limit: int) -> Result:
    """The windows or groups that a table keeps, those alone whose columns have these values.

    Raises:
        LakeError: the table keeps none.
        CommitError: it is broken.
        QueryError: a column that it has not.
    """
    place = _place(project, table)
    where = " AND ".join(f"{quoted(column)} IS NOT DISTINCT FROM ${column}" for column in keys)
    text = f"SELECT * FROM {place.name} WHERE {where or 'true'} ORDER BY ALL LIMIT {limit}"
    return query.run(text, project=project.root, env=project.env, params=keys)


def _place(project: Project, table: str) -> Place:
    project.definition(table)
    if table in project.tables and (streams := [*project.tables[table].event_times]):
        raise LakeError(
            f"rows of {table} that wait for a partner lie in what it reads: {', '.join(streams)}",
            code="NO_STATE",
            table=table,
            hint="headwater state --json says how far each of their partitions has come",
        )
    lake = Lake(project.conf.lake)
    keeps = of(project, lake.places(), table)
    if keeps is not None and keeps.kept_in:
        return lake.place(keeps.kept_in)
    raise LakeError(
        f"{table} keeps nothing between batches, or nothing yet",
        code="NO_STATE",
        table=table,
        hint=f"those that do: {', '.join(one.table for one in kept(project) if one.kept_in) or 'none'}",
    )


def _at(micros: int) -> datetime | None:
    try:
        return times.EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None
