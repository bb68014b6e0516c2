"""How late the rows of a table are, and what each watermark delay would have cost.

A row's lateness is a property of the log, not of when batches were cut: the greatest event time of any
earlier offset of its own partition, less its own event time, and never below 0. A row comes too late for
a window iff an earlier offset of its partition had already reached the window's end + delay. All of it
is one ordered pass by DuckDB, which spills what does not fit its memory; Spark is not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import duckdb

from headwater.common import durations, times
from headwater.common.durations import MICROSECOND
from headwater.errors import QueryError
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.watermarks import Watermark, Window, below
from headwater.query import on_duckdb
from headwater.query.lateness.measured import Choice, Measured, Spread, View
from headwater.query.sources import Sources
from headwater.query.statements import reason
from headwater.storage.places import KEYS

TARGETS = (0.99, 0.999, 0.9999)
_LADDER = "0s 1s 2s 5s 10s 30s 1m 2m 5m 10m 30m 1h 2h 6h 12h 1d 2d 7d 30d 90d 365d 3650d 36500d 3650000d"
LADDER = tuple(durations.parse(text) // MICROSECOND for text in _LADDER.split(" "))
_TIMES = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")
_QUANTILES = (50, 95, 99)


def measure(
    project: Project,
    name: str,
    *,
    event_time: str | None = None,
    window: timedelta | None = None,
    last: timedelta | None = None,
) -> Measured:
    """How late the rows of the table `name` are.

    Args:
        event_time: the column; by default what the table, or a table below it, declares.
        window: judge by windows of this size, whatever the tables below have.
        last: judge only rows ingested so long ago at most; earlier ones still count as earlier.

    Raises:
        QueryError: an unknown table, one without `_source` or event time, or no row to judge.
        ProjectError: a definition below is wrong.
    """
    sources = Sources(project.root, project.env, project.conf)
    table = sources.named([name])[0]
    declared = below(project, table.name)
    since = times.now() - last if last is not None else None
    with on_duckdb.open_views(sources, [table]) as connection:
        view = ".".join(map(on_duckdb.identifier, table.name.split(".", 1)))
        try:
            columns = {row[0]: str(row[1]) for row in connection.execute(f"DESCRIBE {view}").fetchall()}
            column = _event_time(project.tables.get(table.name), table.name, columns, declared, event_time)
            declared = [d for d in declared if d.column == column]
            size = window // MICROSECOND if window else None
            windows = _windows(declared, size)
            _judge(connection, view, column, columns, [*windows], since, _skew(project, table.name))
            return _found(connection, table.name, column, since, declared, windows, size)
        except duckdb.Error as e:
            raise QueryError(
                f"{table.name}: {reason(e)}", code="QUERY_FAILED", table=table.name, file=table.path
            ) from None


def _event_time(
    definition: Table | None,
    name: str,
    columns: dict[str, str],
    declared: Sequence[Watermark],
    asked: str | None,
) -> str:
    """The column of event time."""
    if not all(part in columns.get("_source", "") for part in KEYS):
        raise QueryError(
            f"{name} has no column _source, which says in what order rows came",
            code="ARRIVAL_UNKNOWN",
            table=name,
            hint="name a silver table that decodes a topic",
        )
    times = [column for column, kind in columns.items() if kind in _TIMES]
    hint = f"add --event-time COLUMN, one of: {', '.join(times) or 'none is a TIMESTAMP'}"
    if asked is not None:
        if asked not in times:
            raise QueryError(
                f"{name} has no TIMESTAMP column '{asked}'",
                code="EVENT_TIME_UNKNOWN",
                table=name,
                hint=f"{hint}",
            )
        return asked
    own = definition.event_time if definition else None
    known = list(dict.fromkeys([*([own] if own else []), *(d.column for d in declared)]))
    known = [column for column in known if column in times]
    if len(known) == 1:
        return known[0]
    why = f"the tables below it declare several ({', '.join(known)})" if known else "nothing declares it"
    raise QueryError(
        f"{name}: which column is its event time? {why}",
        code="EVENT_TIME_UNKNOWN",
        table=name,
        hint=f"{hint}",
    )


def _skew(project: Project, name: str) -> int:
    """How far after its `ingested_at` a row may be dated, in microseconds."""
    definition = project.tables.get(name)
    return durations.parse(definition.skew if definition else Table.skew) // MICROSECOND


def _windows(declared: Sequence[Watermark], asked: int | None) -> dict[Window, list[str]]:
    """The windows to judge by, and the tables that have them."""
    if asked is not None:
        return {Window(asked, asked): []}
    found: dict[Window, list[str]] = {}
    for watermark in declared:
        if watermark.window is not None:
            found.setdefault(watermark.window, []).append(watermark.table)
    return found


def _judge(
    connection: duckdb.DuckDBPyConnection,
    view: str,
    column: str,
    columns: dict[str, str],
    windows: Sequence[Window],
    since: datetime | None,
    skew: int,
) -> None:
    """Make the table `judged`: partition, kind, lateness, and per view how many rows have so much excess.

    A row's excess is the greatest delay with which it would still have come too late, -1 where there is
    none; rows that agree in all of that are one, with their number `n`.
    """
    arrived = "epoch_us(ingested_at)" if "ingested_at" in columns else "NULL"
    if since is not None and "ingested_at" not in columns:
        raise QueryError(
            "it has no column ingested_at, which says when rows came",
            code="ARRIVAL_UNKNOWN",
            hint="leave out --last",
        )
    place = ", ".join(f'_source."{part}" AS {part[0]}' for part in KEYS)
    rows = (
        f"times AS (SELECT {place}, epoch_us({on_duckdb.identifier(column)}) AS e, {arrived} AS i "
        f"FROM {view}), rows AS (SELECT *, coalesce(e > i + {skew}, false) AS future, "
        "CASE WHEN NOT future THEN e END AS known FROM times)"
    )
    taken = "taken AS (SELECT *, NULL::BIGINT AS before FROM rows)"
    if since is not None:
        micros = (since - times.EPOCH) // MICROSECOND
        taken = (
            f"firsts AS (SELECT c, t, p, min(o) AS first FROM rows WHERE i >= {micros} GROUP BY ALL), "
            "seeds AS (SELECT c, t, p, first, max(known) FILTER (WHERE o < first) AS before "
            "FROM rows JOIN firsts USING (c, t, p) GROUP BY ALL), "
            "taken AS (SELECT rows.*, before FROM rows JOIN seeds USING (c, t, p) WHERE o >= first)"
        )
    excess = [f"reached - ({_first_end(window)})" for window in windows] or ["reached - e - 1"]
    measures = ", ".join(f"greatest(-1, {what}) AS x{at}" for at, what in enumerate(excess))
    connection.execute(
        f"CREATE TEMP TABLE judged AS WITH {rows}, {taken}, ordered AS (SELECT c, t, p, e, future, "
        "greatest(before, max(known) OVER (PARTITION BY c, t, p ORDER BY o "
        "GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS reached FROM taken) "
        "SELECT c, t, p, CASE WHEN e IS NULL THEN 'none' WHEN future THEN 'future' ELSE 'known' END AS kind, "
        f"greatest(0, reached - e) AS late, {measures}, count(*) AS n FROM ordered GROUP BY ALL"
    )


def _first_end(window: Window) -> str:
    """SQL: the end of the first window to close of those that hold the event time `e`."""
    after = f"(e - {window.size} - {window.offset})"
    into = f"((({after} % {window.slide}) + {window.slide}) % {window.slide})"
    return f"e - {into} + {window.slide}"


def _found(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    column: str,
    since: datetime | None,
    declared: Sequence[Watermark],
    windows: dict[Window, list[str]],
    asked: int | None,
) -> Measured:
    counts = dict(connection.execute("SELECT kind, sum(n)::BIGINT FROM judged GROUP BY kind").fetchall())
    if not counts.get("known"):
        recent = f" that was ingested since {since:%Y-%m-%dT%H:%M:%SZ}" if since else ""
        raise QueryError(
            f"{name} has no row{recent} whose {column} is known and not in the future",
            code="NO_ROWS_TO_JUDGE",
            table=name,
            hint="run its flow, or choose another column or a longer --last",
        )
    unknown = [d.table for d in declared if d.window is None and asked is None]
    notes = [
        f"{', '.join(unknown)}: windows that a function makes are not known here; add --window SPAN, as 5m"
    ]
    views: list[tuple[Window | None, list[str]]] = list(windows.items())
    reached = connection.execute(
        f"SELECT {', '.join(f'max(x{at})' for at in range(len(views) or 1))} FROM judged WHERE kind = 'known'"
    ).fetchone()
    assert reached is not None
    top = next((delay for delay in LADDER if delay > max(reached)), LADDER[-1])
    delays = sorted({*(delay for delay in LADDER if delay <= top), *(d.delay for d in declared)})
    everything = _spreads(connection, by_partition=False)[0]
    return Measured(
        table=name,
        event_time=column,
        since=since,
        without_time=counts.get("none", 0),
        future=counts.get("future", 0),
        all=replace(everything, cluster=None, topic=None, partition=None),
        partitions=tuple(_spreads(connection, by_partition=True)),
        views=tuple(
            View(tuple(tables), window, _choices(connection, at, delays, declared, tables))
            for at, (window, tables) in enumerate(views or [(None, [d.table for d in declared])])
        ),
        notes=tuple(notes if unknown else ()),
    )


def _spreads(connection: duckdb.DuckDBPyConnection, *, by_partition: bool) -> list[Spread]:
    keys = "c, t, p" if by_partition else "NULL AS c, NULL AS t, NULL AS p"
    quantiles = ", ".join(
        f"min(late) FILTER (WHERE upto * 100 >= {q} * everything)::BIGINT" for q in _QUANTILES
    )
    found = connection.execute(
        f"WITH each AS (SELECT {keys}, late, sum(n) AS n FROM judged WHERE kind = 'known' GROUP BY ALL), "
        "ranked AS (SELECT *, sum(n) OVER (PARTITION BY c, t, p ORDER BY late) AS upto, "
        "sum(n) OVER (PARTITION BY c, t, p) AS everything FROM each) "
        "SELECT c, t, p, sum(n)::BIGINT, coalesce(sum(n) FILTER (WHERE late > 0), 0)::BIGINT, "
        f"{quantiles}, max(late) FROM ranked GROUP BY c, t, p ORDER BY c, t, p"
    ).fetchall()
    return [Spread(*row) for row in found]


def _choices(
    connection: duckdb.DuckDBPyConnection,
    at: int,
    delays: Sequence[int],
    declared: Sequence[Watermark],
    tables: Sequence[str],
) -> tuple[Choice, ...]:
    counts = ", ".join(f"coalesce(sum(n) FILTER (WHERE x{at} >= {d}), 0)::BIGINT" for d in delays)
    row = connection.execute(f"SELECT sum(n)::BIGINT, {counts} FROM judged WHERE kind = 'known'").fetchone()
    assert row is not None
    rows, *late = row
    by = {d: tuple(w.table for w in declared if w.delay == d and w.table in tables) for d in delays}
    return tuple(Choice(d, n, 1 - n / rows, by[d]) for d, n in zip(delays, late, strict=True))
