"""A streaming table, analysed: rows of one stream, or of several that are joined, or an aggregate of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from headwater.connectors import decode
from headwater.errors import ProjectError
from headwater.planner import aggregate
from headwater.planner.aggregate import BOUNDS, Aggregate
from headwater.planner.analysis import checks, followers
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.planner.analysis.gates import gate_of
from headwater.planner.analysis.timing import late_columns, lateness_of
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.suite import of_whole_table
from headwater.storage import stored


def analyse(
    project: Project,
    table: Table,
    found: Mapping[str, Analysed],
    result: DataFrame,
    frames: Sequence[DataFrame],
    suite: str,
) -> Analysed:
    """A streaming table.

    Args:
        project: the definitions.
        table: its definition.
        found: the tables that are analysed.
        result: its query over empty inputs.
        frames: these, one for each of its sources.
        suite: the table whose suite judges its rows.

    Raises:
        ProjectError: it can't be made of a batch at a time.
    """
    where = table.where
    streams = project.streams(table)
    if len(streams) > 1:
        for name in (name for name in streams if not found[name].appended):
            raise ProjectError(
                f"{where} joins {name}, whose rows change in place",
                code="INPUT_ROWS_CHANGE",
                where=where,
                hint="write CREATE MATERIALIZED VIEW (@hw.materialized_view), without STREAM",
            )
        return _rows(project, table, result, suite)
    stream = dict(zip(table.sources, frames, strict=True))[streams[0]]
    followed = None if found[streams[0]].appended else found[streams[0]]
    maintained = aggregate.find(result, where)
    checks.row_by_row(result, stream, where)
    if followed is not None and (maintained is not None or table.cdc is not None):
        does = "takes changes from" if table.cdc else "aggregates"
        instead = "do that in a CREATE MATERIALIZED VIEW, or read the table that changes are appended to"
        raise ProjectError(
            f"{where} {does} {followed.name}, whose rows change in place",
            code="INPUT_ROWS_CHANGE",
            where=where,
            hint=instead,
        )
    if followed is not None:
        return followers.analyse(project, table, result, stream, followed)
    if maintained is None:
        return _rows(project, table, result, suite)
    return _aggregate(project, table, result, stream, maintained)


def _rows(project: Project, table: Table, result: DataFrame, suite: str) -> Analysed:
    """A table whose rows are appended."""
    where = table.where
    joins = len(project.streams(table)) > 1
    if (table.emit == "final" and not joins) or table.allowed_lateness:
        what = "emit = 'final'" if table.emit == "final" else "allowed_lateness"
        raise ProjectError(
            f"{where} has {what} but no windows",
            code="WINDOW_MISSING",
            where=where,
            hint="leave it out, or GROUP BY window(…)",
        )
    checks.keys(table, result)
    if table.decode and decode.SOURCE not in result.columns:
        raise ProjectError(
            f"{where} drops the column {decode.SOURCE}",
            code="REQUIRED_COLUMN_MISSING",
            where=where,
            hint="keep it, it says where a row came from",
        )
    return Analysed(
        table.name,
        result.schema.toNullable(),
        stored.schema(result.schema),
        table.keys,
        None,
        fingerprint(project, table),
        gate_of(project, table, result, suite),
        kind="joined rows" if joins else "rows",
    )


def _aggregate(
    project: Project, table: Table, result: DataFrame, stream: DataFrame, maintained: Aggregate
) -> Analysed:
    """A table of partial results, or of windows that are appended when they are over."""
    where = table.where
    if maintained.window and table.delay is None:
        raise ProjectError(
            f"{where} has windows but no watermark",
            code="WATERMARK_MISSING",
            where=where,
            hint="say how late rows may be: in SQL after the stream, WATERMARK <column> DELAY OF INTERVAL 10 "
            "SECONDS; in Python event_time= and delay=",
        )
    if table.decode is not None:
        raise ProjectError(
            f"{where} decodes and aggregates",
            code="DECODES_AND_AGGREGATES",
            where=where,
            hint="decode in a silver table, which quarantines, and aggregate that",
        )
    if table.keys and set(table.keys) != set(maintained.keys):
        raise ProjectError(
            f"{where}: keys {table.keys} are not its GROUP BY {maintained.keys}",
            code="KEYS_NOT_GROUP_BY",
            where=where,
            hint="leave them out",
        )
    if table.name in project.suites:
        of_whole_table(project.suites[table.name])
    checks.not_reserved(result.columns, where, BOUNDS)
    lateness = lateness_of(table, maintained, result, stream)
    final = table.emit == "final"
    return Analysed(
        table.name,
        result.schema.toNullable(),
        stored.schema(result.schema) if final else aggregate.schema(result, where),
        maintained.keys,
        maintained,
        fingerprint(project, table),
        lateness=lateness,
        late=late_columns(lateness, result, where) if lateness else None,
        state=aggregate.schema(result, where, bounds=True) if final else None,
        kind="final windows" if final else "aggregate",
    )
