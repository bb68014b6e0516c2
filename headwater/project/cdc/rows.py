"""The rows of the two tables, as functions of DataFrames: values, so that a definition's hash is of them.

Changes of a row are ordered by (sequence, deletes behind updates, content). That is a whole order, so what
follows from them depends neither on when they came nor on how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headwater.errors import ProjectError, Where
from headwater.errors.causes import first_line
from headwater.project import carried
from headwater.project.cdc.said import (
    DELETED,
    END,
    EVENT,
    SEQUENCE,
    START,
    TOMBSTONE,
    TRUNCATED,
    Cdc,
    Columns,
)
from headwater.runtime.catalyst import named

if TYPE_CHECKING:
    from headwater.errors.codes import Code

_OWN = (SEQUENCE, DELETED, TRUNCATED)
_ERA, _ORDER, _NEXT, _BEFORE, _BEGINS = "__era", "__order", "__next", "__before", "__begins"
_ENDS, _FLOOR = "__ends", "__floor"
_ABOUT = (*carried.COLUMNS, *EVENT, TOMBSTONE)  # what says of a change how it came


@dataclass(frozen=True)
class Changes:
    """A source's rows as changes.

    Columns: the keys, those of the table, `_sequence`, `_deleted` and, where some truncate, `_truncated`
    (BOOLEAN); and what says where a row came from, if the source has it.
    """

    cdc: Cdc
    where: Where = field(compare=False, repr=False)

    def __call__(self, rows: DataFrame) -> DataFrame:
        cdc, where, names = self.cdc, self.where, rows.columns
        if taken := [name for name in names if name.lower() in _OWN]:
            raise _wrong(where, f"its source has a column {taken[0]}", "COLUMN_RESERVED", "rename it below")
        keys = [_key(where, key, names) for key in cdc.keys]
        for what, columns in (("COLUMNS", cdc.columns), ("IGNORE NULL UPDATES", cdc.ignored)):
            _are_known(where, what, columns, names)
        there = _content(cdc, names)
        said = {"SEQUENCE BY": F.expr(cdc.sequence_by).alias(SEQUENCE)}
        said["APPLY AS DELETE WHEN"] = _is(cdc.deletes).alias(DELETED)
        if cdc.truncates is not None:
            said["APPLY AS TRUNCATE WHEN"] = _is(cdc.truncates).alias(TRUNCATED)
        listed = [named(name) for name in names if name in keys or name in there]
        behind = [named(name) for name in carried.COLUMNS if name in names and name not in there]
        try:
            return rows.select(*listed, *said.values(), *behind)
        except PySparkException:
            texts = (cdc.sequence_by, cdc.deletes, cdc.truncates)
            for (clause, column), text in zip(said.items(), texts, strict=False):
                _fits(where, rows, f"{clause} {text}", column)
            raise


@dataclass(frozen=True)
class Unwrapped:
    """Events of Debezium's as `changes` takes them; see `headwater.project.definitions.debezium`."""

    changes: Changes

    def __call__(self, events: DataFrame) -> DataFrame:
        where = self.changes.where

        def said(field: str) -> Column:
            return F.coalesce(F.col(f"payload.{field}"), F.col(field))

        row = F.when(said("op") == "d", said("before")).otherwise(said("after"))
        parts = [
            said("op"),
            *(said(f"source.{name}") for name in ("lsn", "file", "pos", "row")),
            said("ts_ms"),
        ]
        kind = events.schema["after"].dataType
        assert isinstance(kind, StructType)
        columns = [row.getField(name).alias(name) for name in kind.names]
        rows = events.where(said("op").isNull() | (said("op") != "tombstone")).select(
            *columns,
            *(part.alias(name) for part, name in zip(parts, EVENT, strict=True)),
            *carried.COLUMNS,
        )
        if taken := [name for name in rows.columns if rows.columns.count(name) > 1]:
            raise _wrong(
                where, f"its row has a column {taken[0]}, as each event", "COLUMN_RESERVED", "leave it out"
            )
        return self.changes(rows)


@dataclass(frozen=True)
class Latest:
    """The rows as the changes leave them: SCD 1. Columns: those of the changes but for their own."""

    cdc: Cdc
    where: Where = field(compare=False, repr=False)

    def __call__(self, changes: DataFrame) -> DataFrame:
        each = _Each(self.cdc, self.where, changes)
        if self.cdc.ignored is None:
            found = each.rows.groupBy(*each.keys).agg(
                F.max_by(F.struct(DELETED, *map(named, each.content)), F.struct(*each.order)).alias(_NEXT)
            )
            found = found.where(~F.col(f"{_NEXT}.{DELETED}"))
            values = [F.col(_NEXT).getField(name).alias(name) for name in each.content]
            return found.select(*each.keys, *values)
        rows = each.filled()
        rows = rows.withColumn(_NEXT, F.lead(SEQUENCE).over(each.in_order))
        return rows.where(F.col(_NEXT).isNull() & ~F.col(DELETED)).select(*each.listed)


@dataclass(frozen=True)
class History:
    """Every version of the rows: SCD 2. Columns: those of the changes but for their own; `__START_AT` and
    `__END_AT` (the sequence's type): the version is of `[start, end)`, without an end it is the one of now.
    """

    cdc: Cdc
    where: Where = field(compare=False, repr=False)

    def __call__(self, changes: DataFrame) -> DataFrame:
        each = _Each(self.cdc, self.where, changes)
        _are_known(self.where, "TRACK HISTORY ON", self.cdc.tracked, each.content)
        tracked = F.struct(F.lit(0), *map(each.comparable, self.cdc.tracked.of(each.content)))
        # Of changes with the same sequence the last one counts, once all of them have said their part.
        rows = each.filled().withColumn(_NEXT, F.lead(SEQUENCE).over(each.in_order))
        rows = rows.where(F.col(_NEXT).isNull() | (F.col(_NEXT) != F.col(SEQUENCE)))
        before = F.lag(F.struct(F.col(DELETED).alias("deleted"), tracked.alias("tracked"))).over(
            each.in_order
        )
        rows = rows.withColumn(_BEFORE, before)
        begins = F.col(DELETED) | F.col(_BEFORE).isNull() | F.col(f"{_BEFORE}.deleted")
        begins = begins | ~F.col(f"{_BEFORE}.tracked").eqNullSafe(tracked)
        rows = rows.withColumn(_BEGINS, begins).select(
            "*",
            F.max(F.when(F.col(_BEGINS), F.col(SEQUENCE))).over(each.so_far).alias(START),
            F.lead(SEQUENCE).over(each.in_order).alias(END),
            F.lead(_BEGINS, 1, True).over(each.in_order).alias(_ENDS),
        )
        return rows.where(F.col(_ENDS) & ~F.col(DELETED)).select(*each.listed, START, END)


class _Each:
    """The changes of each key, in their order.

    Args:
        cdc: what is said of them.
        where: what errors name.
        changes: they, as `Changes` gives them.
    """

    def __init__(self, cdc: Cdc, where: Where, changes: DataFrame) -> None:
        self._cdc = cdc
        names = [key for key in changes.columns if key not in _OWN]
        keys = [_key(where, key, names) for key in cdc.keys]
        self.keys = [named(key) for key in keys]
        self.content = [name for name in _content(cdc, names) if name not in keys]
        self.listed = [named(name) for name in names if name in keys or name in self.content]
        self._types = {field.name: field.dataType for field in changes.schema}
        order = [F.col(SEQUENCE), F.col(DELETED), *map(self.comparable, self.content)]
        self.order = [F.col(_ORDER)] if cdc.ignored is not None else order
        self.in_order = Window.partitionBy(*self.keys).orderBy(*self.order)
        self.so_far = _so_far(self.in_order)
        self.rows = _with_deletes(changes, keys) if cdc.snapshots else _after_truncation(cdc, changes)
        for key in (SEQUENCE, *keys):
            self.rows = self.rows.where(named(key).isNotNull())
        if cdc.ignored is not None:  # what is filled in plays no part in the order
            self.rows = self.rows.withColumn(_ORDER, F.struct(*order))

    def comparable(self, name: str) -> Column:
        """A column as a value that can be compared: of maps their text."""
        return F.to_json(named(name)) if _has_map(self._types[name]) else named(name)

    def filled(self) -> DataFrame:
        """The changes, in which NULL is what the changes before it said, where NULL is to say nothing."""
        if self._cdc.ignored is None:
            return self.rows
        deletes = F.sum(F.col(DELETED).cast("int"))
        rows = self.rows.withColumn(_ERA, F.coalesce(deletes.over(_before(self.in_order)), F.lit(0)))
        since = _so_far(Window.partitionBy(*self.keys, _ERA).orderBy(*self.order))
        ignored = {*self._cdc.ignored.of(self.content)}
        filled = [
            F.last(named(name), ignorenulls=True).over(since).alias(name) if name in ignored else named(name)
            for name in rows.columns
        ]
        return rows.select(*filled)


def _after_truncation(cdc: Cdc, changes: DataFrame) -> DataFrame:
    """The changes behind the last one that truncates."""
    if cdc.truncates is None:
        return changes
    floor = changes.where(F.col(TRUNCATED)).agg(F.max(SEQUENCE).alias(_FLOOR))
    others = ~F.coalesce(F.col(TRUNCATED), F.lit(False))  # NULL of changes that came before the clause
    rows = changes.where(others).crossJoin(floor)
    return rows.where(F.col(_FLOOR).isNull() | (F.col(SEQUENCE) > F.col(_FLOOR))).drop(_FLOOR)


def _with_deletes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows that are delivered whole as changes: one that the next delivery lacks is deleted by that."""
    there = rows.select(*map(named, keys), SEQUENCE).distinct()
    times = rows.select(SEQUENCE).distinct()
    times = times.select(SEQUENCE, F.lead(SEQUENCE).over(Window.orderBy(SEQUENCE)).alias(_NEXT))
    wanted = there.join(times, SEQUENCE).where(F.col(_NEXT).isNotNull())
    wanted = wanted.select(*map(named, keys), F.col(_NEXT).alias(SEQUENCE))
    lacking = wanted.join(there, [*keys, SEQUENCE], "left_anti").withColumn(DELETED, F.lit(True))
    return rows.unionByName(lacking, allowMissingColumns=True)


def _so_far(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _content(cdc: Cdc, names: Sequence[str]) -> list[str]:
    """The columns that a table has: what says of a change how it came only where it is asked for."""
    chosen = cdc.columns.of([name for name in names if name not in _OWN])
    return [name for name in chosen if cdc.columns.only is not None or name not in _ABOUT]


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def _key(where: Where, key: str, names: Sequence[str]) -> str:
    """The column that a key names."""
    found = Columns(only=(key,)).of(names)
    if not found:
        raise _wrong(
            where,
            f"KEYS names {key}, which its source has not",
            "INPUT_COLUMN_UNKNOWN",
            f"it has {', '.join(names)}",
        )
    return found[0]


def _are_known(where: Where, what: str, columns: Columns | None, names: Sequence[str]) -> None:
    if columns is not None and (unknown := columns.unknown(names)):
        text = f"{what} names {unknown[0]}, which is no column of the table"
        raise _wrong(where, text, "INPUT_COLUMN_UNKNOWN", f"its columns are {', '.join(names)}")


def _is(condition: str | None) -> Column:
    """Whether a condition is true. What is none, as a text, is refused behind WHEN, and not cast."""
    return F.lit(False) if condition is None else F.when(F.expr(condition), True).otherwise(False)


def _fits(where: Where, rows: DataFrame, clause: str, column: Column) -> None:
    """Check that what a clause says can be told of the rows."""
    try:
        rows.select(column)
    except PySparkException as e:
        raise _wrong(where, f"{clause}: {first_line(e)}", "DEFINITION_FAILED", "mend it") from None


def _wrong(where: Where, what: str, code: Code, hint: str) -> ProjectError:
    return ProjectError(f"{where}: {what}", code=code, where=where, hint=hint)
