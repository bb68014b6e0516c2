"""Expectations about rows of one key: of equal ones the first stays; in Kafka's order a column may only grow.

A row is compared with the rows before it, in the batch and in the table. One that another rule keeps out of
the table is not judged, and no other row is judged by it.
Those rows of the table that have keys of the batch are looked up in an index
(`headwater.storage.key_index`). A column that may only grow is compared with the rows that have come as far
as one of the batch: the bounds of the table's files say where they may be. Of a batch of many rows it is
compared with the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StructType

from headwater.connectors.decode import SOURCE
from headwater.errors import ProjectError
from headwater.project.rule import ORDERED, Rule
from headwater.quality.arguments import ALL, TIMES, Arguments
from headwater.runtime import catalyst
from headwater.storage.pruning import Reach, has_bounds, reaches, since, upto

UNIQUE = ("expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique")
TYPES = (*UNIQUE, *ORDERED)

_RANK, _KNOWN, _BEFORE = "__rank", "__known", "__before"
_PARTITION = ("cluster", "topic", "partition")
_NO_ORDER = ("map<", "variant", "interval")


class KeyRule(Protocol):
    """One rule about rows of one key."""

    @property
    def rule(self) -> Rule:
        """The expectation."""

    @property
    def alone(self) -> tuple[str, ...]:
        """The columns by which alone rows are compared; none where that takes every row of the table."""

    def reach(self, rows: pa.Table) -> Mapping[str, Reach]:
        """Where values of the table's rows lie that rows of a batch are compared with; {}: anywhere."""

    def mark(self, rows: DataFrame, clean: Column, written: DataFrame | None, name: str) -> DataFrame:
        """The rows and a column `name`: whether they fail the rule.

        Args:
            rows: those of a batch.
            clean: which of them no other rule keeps out of the table.
            written: what the table holds; the rows whose columns `alone` are those of a row will do.
            name: of the column.
        """


@dataclass(frozen=True)
class Unique:
    """Of the rows of one key the first stays; see `KeyRule`.

    Attributes:
        rule: the expectation.
        keys: its columns.
        seen: which rows it sees.
        order: what puts rows of one key in order, so that it is the same whenever they are judged.
    """

    rule: Rule
    keys: tuple[Column, ...]
    seen: Column
    order: tuple[Column, ...]

    @property
    def alone(self) -> tuple[str, ...]:
        """Its keys."""
        return self.rule.columns

    def reach(self, rows: pa.Table) -> Mapping[str, Reach]:
        """That of its keys."""
        return reaches(rows, self.rule.columns)

    def mark(self, rows: DataFrame, clean: Column, written: DataFrame | None, name: str) -> DataFrame:
        """The rows and whether they fail."""
        counted = self.seen & clean
        window = Window.partitionBy(*self.keys).orderBy(F.when(counted, 0).otherwise(1), *self.order)
        ranked = rows.withColumn(_RANK, F.row_number().over(window))
        fails = F.col(_RANK) > 1
        if written is not None:
            known = written.where(self.seen).select(*_named(self.keys)).distinct()
            ranked = ranked.join(known.withColumn(_KNOWN, F.lit(True)), _same(self.keys), "left")
            fails = fails | F.col(_KNOWN).isNotNull()
        marked = ranked.withColumn(name, F.coalesce(counted & fails, F.lit(False)))
        return marked.select(*map(catalyst.named, rows.columns), name)


@dataclass(frozen=True)
class Ordered:
    """A column only grows (or falls) from row to row of one key in one partition; see `KeyRule`.

    Attributes:
        rule: the expectation.
        keys: what tells the rows of one key in one partition.
        value: what grows.
        falls: whether it falls instead.
        strictly: whether two equal ones fail.
        seen: which rows it sees.
        order: the order of Kafka.
    """

    rule: Rule
    keys: tuple[Column, ...]
    value: Column
    falls: bool
    strictly: bool
    seen: Column
    order: tuple[Column, ...]

    @property
    def alone(self) -> tuple[str, ...]:
        """None: what came furthest may be in any row."""
        return ()

    def reach(self, rows: pa.Table) -> Mapping[str, Reach]:
        """From what came least far in the batch on: what the table has before that, no row is behind of."""
        (name,) = self.rule.columns
        values = rows[name]
        if not has_bounds(values.type):
            return {}
        if values.null_count == len(values):
            return {name: Reach(())}
        return {name: upto(pc.max(values)) if self.falls else since(pc.min(values))}

    def mark(self, rows: DataFrame, clean: Column, written: DataFrame | None, name: str) -> DataFrame:
        """The rows and whether they fail."""
        counted = self.seen & clean
        furthest, further = (F.min, F.least) if self.falls else (F.max, F.greatest)
        window = Window.partitionBy(*self.keys).orderBy(*self.order)
        earlier = window.rowsBetween(Window.unboundedPreceding, -1)
        compared = rows.withColumn(_BEFORE, furthest(F.when(counted, self.value)).over(earlier))
        before = F.col(_BEFORE)
        if written is not None:
            known = (
                written.where(self.seen).groupBy(*_named(self.keys)).agg(furthest(self.value).alias(_KNOWN))
            )
            compared = compared.join(known, _same(self.keys), "left")
            before = further(before, F.col(_KNOWN))
        ahead, behind = (before, self.value) if self.falls else (self.value, before)
        fails = ahead <= behind if self.strictly else ahead < behind
        marked = compared.withColumn(name, F.coalesce(counted & fails, F.lit(False)))
        return marked.select(*map(catalyst.named, rows.columns), name)


def compile(rule: Rule, columns: StructType) -> KeyRule:
    """A rule about rows of one key.

    Raises:
        ProjectError: it does not fit the table, or the table's rows have no order to tell the first by.
    """
    if rule.type in ORDERED and not rule.within:
        raise ProjectError(
            f"{rule.where}: {rule.id}: a table has no order, the records of one key have",
            code="ORDER_WITHOUT_KEYS",
            where=rule.where,
            hint="name what tells keys apart, as meta.within = ['id'], or write meta.scope = 'table' for "
            "headwater quality run",
        )
    if SOURCE not in columns.fieldNames():
        raise ProjectError(
            f"{rule.where}: {rule.id} needs the column {SOURCE} to tell which row was first",
            code="REQUIRED_COLUMN_MISSING",
            where=rule.where,
            hint="keep it",
        )
    arguments = Arguments(rule, columns)
    return _ordered(rule, arguments, columns) if rule.type in ORDERED else _unique(rule, arguments, columns)


def _unique(rule: Rule, arguments: Arguments, columns: StructType) -> Unique:
    if rule.type == UNIQUE[0]:
        keys = [arguments.column()[0]]
        seen = keys[0].isNotNull()
    else:
        keys = [column for column, _ in arguments.columns()]
        seen = arguments.seen(keys, ALL)
    return Unique(rule, tuple(keys), _sight(arguments, seen), _order(columns, alike=rule.columns))


def _ordered(rule: Rule, arguments: Arguments, columns: StructType) -> Ordered:
    value, kind = arguments.column()
    if not isinstance(kind, (NumericType, *TIMES)):
        raise arguments.wrong(f"{rule.columns[0]} is {kind.simpleString()}; this is for numbers and times")
    within = [arguments.named(name)[0] for name in rule.within]
    place = [F.col(f"{SOURCE}.{part}") for part in _PARTITION]
    strictly = bool(arguments.get("strictly"))
    seen = _sight(arguments, value.isNotNull())
    falls = rule.type == ORDERED[1]
    return Ordered(rule, (*place, *within), value, falls, strictly, seen, _order(columns))


def _sight(arguments: Arguments, seen: Column) -> Column:
    condition = arguments.condition()
    arguments.check()
    return seen if condition is None else condition & seen


def _order(columns: StructType, alike: Sequence[str] = ()) -> tuple[Column, ...]:
    """By their records; of one record by all that they have which has an order, but for what is alike."""
    kinds = {field.name: field.dataType.simpleString() for field in columns}
    plain = [name for name, kind in kinds.items() if not any(each in kind for each in _NO_ORDER)]
    return F.col(SOURCE), *(catalyst.named(name) for name in plain if name not in (SOURCE, *alike))


def _named(keys: tuple[Column, ...]) -> list[Column]:
    return [key.alias(f"__key{at}") for at, key in enumerate(keys)]


def _same(keys: tuple[Column, ...]) -> Column:
    return reduce(and_, [key.eqNullSafe(F.col(f"__key{at}")) for at, key in enumerate(keys)])
