"""Named queries that are kept nowhere (`CREATE TEMPORARY VIEW`): each table is given those that it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headwater.errors import ProjectError
from headwater.project.definitions import Table, View


def with_snapshots(table: Table, references: Collection[str]) -> Table:
    """A table that streams, which knows which of its sources it reads as they are: of a query those without
    STREAM, where another has it."""
    if table.view or table.process is not None:
        return replace(table, snapshots=())
    said = table.snapshots
    if table.sql is not None and table.sql.streams:
        said = tuple(name for name in table.sources if name not in table.sql.streams)
    return replace(table, snapshots=tuple(name for name in said if name not in references))


def expanded(table: Table, views: Mapping[str, View], references: Collection[str]) -> Table:
    """A table with the views between it and its sources, which then are tables and reference tables alone.

    It streams what a view streams that it reads by STREAM, or, of one that says nothing of it, all that the
    view reads. A materialized view reads whole tables, so it streams whatever one of its views does.

    Raises:
        ProjectError: views read each other in a circle.
    """
    found: dict[str, View] = {}
    for name in table.inputs:
        for view in _below(name, views, ()):
            found.setdefault(view.name, view)
    if not found:
        return table
    leaves = {name: _leaves(view, found) for name, view in found.items()}
    sources = dict.fromkeys(leaf for name in table.inputs for leaf in leaves.get(name, (name,)))
    times = [(one.event_time, one.delay) for one in reversed(found.values())]
    event_time, delay = next(
        (time for time in [(table.event_time, table.delay), *times] if time[0]), (None, None)
    )
    query = table.sql
    if not table.view:
        _check_read_one_way(table, found)
    if query is not None:
        named = [*query.streams, *(found if table.view and not table.corrected else ())]
        streams = {leaf for name in named for leaf in _streams(name, found, table)} - {*references}
        query = replace(query, streams=tuple(leaf for leaf in sources if leaf in streams))
    streamed = query.streams if query is not None else {*sources} - {*references, *table.snapshots}
    return replace(
        table,
        sources=tuple(sources),
        reads=table.inputs,
        views=tuple(found.values()),
        sql=query,
        event_time=event_time,
        event_times=_event_times(table, found, streamed, delay),
        delay=delay,
    )


def _check_read_one_way(table: Table, views: Mapping[str, View]) -> None:
    """No table is read by STREAM in one of the queries, and as a table in another.

    Raises:
        ProjectError: one is.
    """
    queries: list[Table | View] = [table, *views.values()]
    said = [(each, each.sql.streams) for each in queries if each.sql and each.sql.streams]
    streamed = {leaf for _, streams in said for name in streams for leaf in _streams(name, views, table)}
    for each, streams in said:
        for name in each.inputs:
            whole = _leaves(views[name], views) if name in views else (name,)
            if name not in streams and (both := next(filter(streamed.__contains__, whole), None)):
                raise ProjectError(
                    f"{each.where} reads {both} as a table, and {table.name} follows it by STREAM",
                    code="STREAM_MISSING",
                    where=each.where,
                    hint="write FROM STREAM at both; or CREATE MATERIALIZED VIEW, without STREAM",
                )


def _event_times(
    table: Table, views: dict[str, View], streams: Collection[str], delay: str | None
) -> Mapping[str, str]:
    """The event times of the streams of a table whose rows wait for partners: its own, and those that its
    views tell of what they stream.

    Raises:
        ProjectError: a view tells another delay.
    """
    if table.emit != "final" or len(streams) < 2 or table.process is not None:
        return table.event_times
    told = dict(table.event_times)
    for view in reversed(views.values()):
        if view.event_time is None:
            continue
        if view.delay != delay:
            raise ProjectError(
                f"{table.where}: the delay of {view.name} is {view.delay}, of others {delay}",
                code="DELAYS_DIFFER",
                where=table.where,
                hint="give all the longest: rows wait until all streams have come as far",
            )
        for stream in _streams(view.name, views, table):
            told.setdefault(stream, view.event_time)
    return told


def _below(name: str, views: Mapping[str, View], above: tuple[str, ...]) -> Iterator[View]:
    """The view `name` after all those that it reads; none where it is no view."""
    if name not in views:
        return
    view = views[name]
    if name in above:
        cycle = [*above[above.index(name) :], name]
        raise ProjectError(
            f"{view.where} is in a cycle: {' → '.join(cycle)}",
            code="DEFINITIONS_CYCLE",
            where=view.where,
            hint="cut it",
        )
    for source in view.inputs:
        yield from _below(source, views, (*above, name))
    yield view


def _leaves(view: View, views: Mapping[str, View]) -> tuple[str, ...]:
    """The tables and reference tables that a view follows from."""
    found = (_leaves(views[source], views) if source in views else (source,) for source in view.inputs)
    return tuple(dict.fromkeys(leaf for leaves in found for leaf in leaves))


def _streams(name: str, views: Mapping[str, View], reader: Table) -> tuple[str, ...]:
    """The tables that are streamed where `name` is."""
    if name not in views:
        return (name,)
    view = views[name]
    said = view.sql.streams if view.sql is not None else ()
    if not said:
        return () if reader.view and not reader.corrected else _leaves(view, views)
    return tuple(leaf for source in said for leaf in _streams(source, views, reader))
