"""A table that a process feeds, analysed."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.connectors import decode
from headwater.errors import ProjectError, Where
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.event_time import LATENESS, WATERMARK, Lateness
from headwater.project.definitions import Table
from headwater.project.process import DUE, STATE, TIMER, TOUCHED, WAITING, Process
from headwater.project.watermarks import microseconds
from headwater.runtime import jvm
from headwater.storage import stored

_INSTANT = pa.timestamp("us", "UTC")
_NO_KEYS = (DoubleType, FloatType, StructType, ArrayType, MapType)


def analyse(table: Table, process: Process, source: StructType, fingerprint: str) -> Analysed:
    """A table that a process feeds.

    Args:
        table: its definition.
        process: its process.
        source: the columns of what it reads.
        fingerprint: that of the definition.

    Raises:
        ProjectError: columns that the source has not, or what is no DDL or interval.
    """
    where = table.where
    if not process.keys:
        raise ProjectError(
            f"{where} has no keys",
            code="KEYS_MISSING",
            where=where,
            hint="say which columns' rows belong together",
        )
    for name in (*process.keys, table.event_time, decode.SOURCE, "ingested_at"):
        if name not in source.fieldNames():
            raise ProjectError(
                f"{where} needs the column {name} of {table.sources[0]}, which has: "
                f"{', '.join(source.fieldNames())}",
                code="INPUT_COLUMN_UNKNOWN",
                where=where,
            )
    for key in process.keys:
        _is(not isinstance(source[key].dataType, _NO_KEYS), where, key, source[key].dataType, "is no key")
    time = str(table.event_time)
    _is(isinstance(source[time].dataType, TimestampType), where, time, source[time].dataType, "tells no time")
    assert table.delay is not None
    delay = microseconds(table.delay, table)
    if process.ttl is not None:
        microseconds(process.ttl, table)
    columns, state = _ddl(process.columns, where, "columns"), _ddl(process.state, where, "state")
    keys = StructType([source[key] for key in process.keys])
    own = {STATE, TIMER, TOUCHED, WAITING, DUE}
    for name in (*process.keys, *columns.fieldNames()):
        if name in own:
            raise ProjectError(
                f"{where}: the engine has a column {name} of its own",
                code="COLUMN_RESERVED",
                where=where,
                hint="rename it",
            )
    row = pa.struct(list(stored.schema(source)))
    kept = [
        *stored.schema(keys),
        pa.field(STATE, pa.struct(list(stored.schema(state)))),
        pa.field(TIMER, _INSTANT),
        pa.field(TOUCHED, _INSTANT),
        pa.field(WAITING, pa.list_(pa.field("element", row))),
        pa.field(DUE, _INSTANT),
    ]
    late = StructType([*source, StructField(WATERMARK, TimestampType()), StructField(LATENESS, DoubleType())])
    return Analysed(
        table.name,
        columns.toNullable(),
        stored.schema(columns),
        (),
        None,
        fingerprint,
        lateness=Lateness(time, delay, session=True),
        late=stored.schema(late),
        state=pa.schema(kept),
        kind="process",
    )


def _ddl(text: str, where: Where, what: str) -> StructType:
    try:
        return jvm.ddl(text)
    except ValueError as e:
        raise ProjectError(
            f"{where}: its {what} are not Spark DDL: {e}", code="DDL_INVALID", where=where
        ) from None


def _is(fits: bool, where: Where, column: str, kind: DataType, what: str) -> None:
    if not fits:
        raise ProjectError(
            f"{where}: {column} is {kind.simpleString()}, which {what}",
            code="COLUMN_UNSUITABLE",
            where=where,
            hint="take another column",
        )
