"""What the tables below a table declare of its event time: the column, the delay, the windows.

SQL definitions say it in their text, which Spark's parser reads without a session. A Python function says
its column and delay in `@hw.table`; its windows are known to nobody until it is analysed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.errors import ProjectError
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.runtime import cache, catalyst, jvm

_DAY = 86_400_000_000


@dataclass(frozen=True)
class Window:
    """Windows of `size`, one every `slide`, the first beginning `offset` after the epoch: microseconds."""

    size: int
    slide: int
    offset: int = 0


@dataclass(frozen=True)
class Watermark:
    """What one table declares of the event time of the table that it reads.

    Attributes:
        table: which one declares it.
        column: the event time, a column of the table that is read.
        delay: how much later rows may come, in microseconds.
        window: what it groups by; None where it has no windows, or is a function.
    """

    table: str
    column: str
    delay: int
    window: Window | None


def below(project: Project, name: str) -> list[Watermark]:
    """The watermarks that tables declare which read the table `name`, in the order of the graph.

    Raises:
        ProjectError: a delay that is no interval.
    """
    found = []
    for table in project.tables.values():
        column = table.stream(name).event_time if name in table.sources else None
        if column and table.delay:
            found.append(Watermark(table.name, column, microseconds(table.delay, table), _window(table)))
    return found


def _window(table: Table) -> Window | None:
    """The windows that a SQL query groups by, where they are of its event time."""
    if table.sql is None:
        return None
    for call in _windows(table.sql.bare([f"`{name}`" for name in table.inputs])):
        parts = [microseconds(span, table) if isinstance(span, str) else span for span in call.spans]
        if call.column == table.event_time and parts and None not in parts:
            size, slide, offset = (*parts, *(parts[0], 0)[len(parts) - 1 :])
            return Window(size or 0, slide or 0, offset or 0)
    return None


@dataclass(frozen=True)
class _Call:
    """A call of `window` in a GROUP BY: its column and its spans, as written; None: one is no literal."""

    column: str
    spans: tuple[int | str | None, ...]


@cache.kept
def _windows(text: str) -> tuple[_Call, ...]:
    """The calls of `window` in the GROUP BY of a query."""
    found = []
    for call in _calls(jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(text)):
        column, *spans = jvm.items(call.children())
        own = str(column.sql()).replace("`", "").rsplit(".", 1)[-1]
        found.append(_Call(own, tuple(map(_literal, spans))))
    return tuple(found)


def _calls(plan: Any) -> Iterator[Any]:
    """The calls of `window` in the GROUP BY of a parsed query."""
    if catalyst.kind(plan) == "Aggregate":
        for expression in jvm.items(plan.groupingExpressions()):
            called = catalyst.kind(expression) == "UnresolvedFunction"
            if called and [str(part).lower() for part in jvm.items(expression.nameParts())] == ["window"]:
                yield expression
    for child in jvm.items(plan.children()):
        yield from _calls(child)


def _literal(expression: Any) -> int | str | None:
    if catalyst.kind(expression) != "Literal":
        return None
    value = expression.value()
    return value if isinstance(value, int) else str(value.toString())


def tolerance(table: Table) -> int:
    """How far behind its partition a row of the table may lie, in microseconds: delay and allowed lateness.

    Raises:
        ProjectError: one of them is no interval.
    """
    return sum(microseconds(text, table) for text in (table.delay, table.allowed_lateness) if text)


def microseconds(text: str, table: Table) -> int:
    """The microseconds of an interval as Spark writes it (`5 minutes`).

    Raises:
        ProjectError: it is none.
    """
    try:
        return _interval(text)
    except (Py4JJavaError, PySparkException):
        raise ProjectError(
            f"{table.where}: '{text}' is no interval",
            code="INTERVAL_INVALID",
            where=table.where,
            hint="write one such as 10 seconds",
        ) from None


@cache.kept
def _interval(text: str) -> int:
    """In microseconds."""
    virtual = jvm.gateway().jvm
    found = virtual.org.apache.spark.sql.catalyst.util.IntervalUtils.stringToInterval(
        virtual.org.apache.spark.unsafe.types.UTF8String.fromString(text)
    )
    months, days, rest = (int(get_field(found, name)) for name in ("months", "days", "microseconds"))
    return (months * 31 + days) * _DAY + rest  # a month is 31 days, as Spark's watermarks have it
