"""When rows are late, of an aggregate and of several streams, and what a late table holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.connectors import decode
from headwater.errors import ProjectError, Where
from headwater.planner import aggregate, group_by, instants
from headwater.planner.aggregate import Aggregate
from headwater.planner.analysis import checks
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.event_time import LATENESS, WATERMARK, EventTime, Lateness
from headwater.project.definitions import Table
from headwater.project.process import STREAM
from headwater.project.watermarks import tolerance
from headwater.runtime import catalyst
from headwater.storage import stored

_TIMES = (TimestampType, TimestampNTZType)


def lateness_of(table: Table, maintained: Aggregate, result: DataFrame, stream: DataFrame) -> Lateness | None:
    """What makes a row too late for an aggregate; None where none is.

    Raises:
        ProjectError: the definition says of time what can't be.
    """
    where = table.where
    if maintained.window == "session" and table.emit == "update":
        told = {output.window for output in maintained.outputs}
        if "all" not in told and not told >= {"start", "end"}:
            raise ProjectError(
                f"{where}: its sessions grow",
                code="SESSION_BOUNDS_MISSING",
                where=where,
                hint="add the session's start and end to its columns",
            )
    if table.emit == "update" and table.allowed_lateness is None:
        return None
    if not maintained.window:
        raise ProjectError(
            f"{where} has no window of time, so no row of it is late",
            code="WINDOW_MISSING",
            where=where,
            hint="GROUP BY window(…)",
        )
    if table.emit == "final" and table.allowed_lateness is not None:
        raise ProjectError(
            f"{where}: a final window is not corrected",
            code="LATENESS_OF_FINAL_WINDOW",
            where=where,
            hint="leave allowed_lateness out and raise the delay, or write emit = 'update'",
        )
    if table.event_time is None:
        raise ProjectError(
            f"{where} does not say by which column rows are late",
            code="WATERMARK_MISSING",
            where=where,
            hint="say event_time = '…' and a delay, in SQL WATERMARK … DELAY OF INTERVAL …",
        )
    rows = aggregate.rows(result, where)
    if table.event_time not in stream.columns:
        raise ProjectError(
            f"{where} tells the time by {table.event_time}, which {table.sources[0]} does not have",
            code="INPUT_COLUMN_UNKNOWN",
            where=where,
            hint="make it a column there",
        )
    for column in (table.event_time, decode.SOURCE, "ingested_at"):
        if column not in rows.columns:
            raise ProjectError(
                f"{where} aggregates rows without the column {column}",
                code="REQUIRED_COLUMN_MISSING",
                where=where,
                hint="keep it, it tells which rows are late",
            )
    checks.suits(
        isinstance(stream.schema[table.event_time].dataType, _TIMES),
        stream.schema[table.event_time],
        where,
        "tells no time",
    )
    session = maintained.window == "session"
    own = session or (
        table.event_time in catalyst.carried(rows, stream)
        and instants.is_held(group_by.take(result, where), table.event_time)
    )
    return Lateness(table.event_time, tolerance(table), session, own)


def late_columns(lateness: Lateness, result: DataFrame, where: Where) -> pa.Schema:
    """The columns of the late table."""
    found = lateness.late(lateness.marked(lateness.told(aggregate.rows(result, where), EventTime())))
    checks.columns(found, where)
    return stored.schema(found.schema)


def check(columns: StructType, time: str, source: str, where: Where) -> None:
    """Check that the columns of a stream tell which of its rows are late.

    Raises:
        ProjectError: one is missing, or the event time is none.
    """
    checks.has(columns, (time, decode.SOURCE, "ingested_at"), source, where)
    checks.suits(isinstance(columns[time].dataType, TimestampType), columns[time], where, "tells no time")


def together(table: Table, sources: Mapping[str, StructType]) -> StructType:
    """The columns of rows of several streams: those of all, and which stream a row is of.

    Args:
        table: who reads them.
        sources: {stream → its columns}.

    Raises:
        ProjectError: columns of one name have other types in another stream.
    """
    found = {STREAM: StructField(STREAM, StringType())}
    for source, columns in sources.items():
        for column in columns:
            if column.name.lower() == STREAM:
                raise checks.reserved(column.name, table.where)
            known = found.setdefault(column.name.lower(), column)
            if (known.name, known.dataType) != (column.name, column.dataType):
                said = " and ".join(f"{each.name} {each.dataType.simpleString()}" for each in (known, column))
                raise differ(table, source, said)
    return StructType([*found.values()])


def late(rows: StructType) -> StructType:
    """The columns of late rows: their own, the watermark that they missed (UTC), and by how many seconds."""
    return StructType([*rows, StructField(WATERMARK, TimestampType()), StructField(LATENESS, DoubleType())])


def differ(table: Table, source: str, what: str) -> ProjectError:
    """Streams whose rows can't stand in one table."""
    return ProjectError(
        f"{table.where}: {source} differs from the streams before it in {what}",
        code="STREAMS_DIFFER",
        where=table.where,
        hint="cast or rename one of them in the table that has it",
    )


def ordered(table: Table, found: Mapping[str, Analysed], analysed: Analysed) -> Analysed:
    """A table, and whether its rows come in an order of time.

    Raises:
        ProjectError: it tells which rows are late of rows that come in none.
    """
    above = [name for name in table.sources if name in found and found[name].disordered]
    if above and analysed.lateness is not None:
        raise ProjectError(
            f"{table.where} tells which rows of {above[0]} are late, which come as streams are joined, in no "
            "order of time",
            code="TIME_OF_JOIN",
            where=table.where,
            hint="leave emit and allowed_lateness out, or read the streams themselves",
        )
    is_joined = analysed.joins is not None or (analysed.kind == "rows" and bool(above))
    return replace(analysed, disordered=is_joined)
