"""A table that a process feeds, analysed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
)

from headwater.errors import ProjectError, Where
from headwater.planner.analysis import checks, timing
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.event_time import Lateness
from headwater.project.definitions import Table
from headwater.project.process import (
    DUE,
    STATE,
    TIMER,
    TOUCHED,
    Process,
    Stream,
)
from headwater.project.watermarks import microseconds
from headwater.runtime import jvm
from headwater.storage import stored

_INSTANT = pa.timestamp("us", "UTC")
_NO_KEYS = (DoubleType, FloatType, StructType, ArrayType, MapType)


def analyse(table: Table, process: Process, sources: Mapping[str, StructType], fingerprint: str) -> Analysed:
    """A table that a process feeds.

    Args:
        table: its definition.
        process: its process.
        sources: {table that it reads → its columns}.
        fingerprint: that of the definition.

    Raises:
        ProjectError: columns that a source has not, or that those of another contradict, or what is no DDL or
            interval.
    """
    where = table.where
    for source, columns in sources.items():
        _check(table, source, columns, table.stream(source))
    assert table.delay is not None
    delay = microseconds(table.delay, table)
    if process.ttl is not None:
        microseconds(process.ttl, table)
    columns, state = _ddl(process.columns, where, "columns"), _ddl(process.state, where, "state")
    keys = StructType([sources[table.sources[0]][key] for key in process.keys])
    own = {STATE, TIMER, TOUCHED, DUE}
    for name in (*process.keys, *columns.fieldNames()):
        if name in own:
            raise checks.reserved(name, table.where)
    rows = _rows(table, process, sources)
    kept = [
        *stored.schema(keys),
        pa.field(STATE, pa.struct(list(stored.schema(state)))),
        pa.field(TIMER, _INSTANT),
        pa.field(TOUCHED, _INSTANT),
        pa.field(DUE, _INSTANT),
    ]
    return Analysed(
        table.name,
        columns.toNullable(),
        stored.schema(columns),
        (),
        None,
        fingerprint,
        lateness=Lateness(str(table.event_time), delay, session=True),
        late=stored.schema(timing.late(rows)),
        state=pa.schema(kept),
        kind="process",
    )


def _check(table: Table, source: str, columns: StructType, stream: Stream) -> None:
    """Check that a source has what tells its rows' keys and time."""
    where, time = table.where, str(stream.event_time)
    if not stream.keys:
        raise ProjectError(
            f"{where} has no keys",
            code="KEYS_MISSING",
            where=where,
            hint="say which columns' rows belong together",
        )
    checks.has(columns, (*stream.keys, time), source, where)
    for key in stream.keys:
        checks.suits(not isinstance(columns[key].dataType, _NO_KEYS), columns[key], where, "is no key")
    timing.check(columns, time, source, where)


def _rows(table: Table, process: Process, sources: Mapping[str, StructType]) -> StructType:
    """The columns of its rows: those of all streams, and which of them a row is of, where they have
    names.

    Raises:
        ProjectError: columns of one name, or the keys, have other types in another stream.
    """
    if not process.is_named:
        return sources[table.sources[0]]
    first = sources[table.sources[0]]
    for source, columns in sources.items():
        keys = table.stream(source).keys
        ours, theirs = (
            [of[key].dataType for key in names] for of, names in ((columns, keys), (first, process.keys))
        )
        if ours != theirs:
            kinds = " and ".join(", ".join(kind.simpleString() for kind in each) for each in (theirs, ours))
            raise timing.differ(table, source, f"keys: {kinds}")
    return timing.together(table, sources)


def _ddl(text: str, where: Where, what: str) -> StructType:
    try:
        return jvm.ddl(text)
    except ValueError as e:
        raise ProjectError(
            f"{where}: its {what} are not Spark DDL: {e}", code="DDL_INVALID", where=where
        ) from None
