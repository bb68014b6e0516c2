"""What an expectation's arguments say, taken and checked: an unknown column, a bound of another type, a
regular expression that is none are refused when the project loads, not found while the stream runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import reduce
from operator import and_, or_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.errors import ProjectError
from headwater.errors.causes import first_line
from headwater.project.rule import Rule
from headwater.runtime import catalyst, jvm

TIMES = (DateType, TimestampType, TimestampNTZType)
_CONDITION = ("row_condition", "condition_parser")
_COMPARISONS: dict[str, Callable[[Column, Any], Column]] = {
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}

# Which rows `ignore_row_if` leaves in sight, from which of their columns are NULL; the default comes first.
PAIR: dict[str, Callable[[list[Column]], Column]] = {
    "both_values_are_missing": lambda nulls: ~reduce(and_, nulls),
    "either_value_is_missing": lambda nulls: ~reduce(or_, nulls),
    "neither": lambda nulls: F.lit(True),
}
ALL: dict[str, Callable[[list[Column]], Column]] = {
    "all_values_are_missing": lambda nulls: ~reduce(and_, nulls),
    "any_value_is_missing": lambda nulls: ~reduce(or_, nulls),
    "never": lambda nulls: F.lit(True),
}


class Arguments:
    """The arguments of one rule, each taken by name and checked against the table.

    Args:
        rule: the expectation.
        columns: the table's.
    """

    def __init__(self, rule: Rule, columns: StructType) -> None:
        self._rule = rule
        self._columns = columns
        self.sight: Column | None = None  # which rows `ignore_row_if` leaves in sight
        self.used: set[str] = set()

    def check(self) -> None:
        """Check that every argument was taken.

        Raises:
            ProjectError: one was not, so it is unknown.
        """
        unused = set(self._rule.kwargs) - self.used - {*_CONDITION, "mostly"}
        if unused:
            raise ProjectError(
                f"{self._rule.where}: {self._rule.type} has no argument '{sorted(unused)[0]}'",
                code="EXPECTATION_INVALID",
                where=self._rule.where,
                hint=f"known: {', '.join(sorted(self.used))}",
            )

    def get(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        return self._rule.kwargs.get(name, default)

    def need(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise self.wrong(f"{name} is missing; add it to kwargs")
        return found

    def column(self, argument: str = "column") -> tuple[Column, DataType]:
        return self.named(self.need(argument))

    def columns(self) -> list[tuple[Column, DataType]]:
        names = self.need("column_list")
        if not isinstance(names, list) or len(names) < 2:
            raise self.wrong("column_list has fewer than two columns")
        return [self.named(name) for name in names]

    def named(self, name: str) -> tuple[Column, DataType]:
        if name not in self._columns.fieldNames():
            known = ", ".join(self._columns.fieldNames())
            raise self.wrong(f"no column '{name}'; known: {known}")
        return catalyst.named(name), self._columns[name].dataType

    def text(self, argument: str = "column") -> Column:
        column, kind = self.column(argument)
        if not isinstance(kind, StringType):
            raise self.wrong(f"{self.need(argument)} is {kind.simpleString()}, and this is for strings")
        return column

    def literal(self, value: Any, kind: DataType) -> Column:
        """A value of the suite, to be compared with a column of type `kind`."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(kind, NumericType) and number:
            return F.lit(value)
        if isinstance(kind, BooleanType) and isinstance(value, bool):
            return F.lit(value)
        if isinstance(kind, StringType) and isinstance(value, str):
            return F.lit(value)
        if isinstance(kind, TIMES) and isinstance(value, str):
            try:
                found = (date if isinstance(kind, DateType) else datetime).fromisoformat(value)
            except ValueError:
                raise self.wrong(f"'{value}' is no {kind.simpleString()}; write it as ISO 8601") from None
            return F.lit(found.isoformat()).cast(kind)  # Spark reads fewer forms than Python does
        raise self.wrong(f"{value!r} can't be compared with a {kind.simpleString()}")

    def literals(self, argument: str, kind: DataType) -> list[Column]:
        values = self.need(argument)
        if not isinstance(values, list) or not values:
            raise self.wrong(f"{argument} is no list of values")
        return [self.literal(value, kind) for value in values if value is not None]

    def regex(self, value: Any) -> str:
        try:
            jvm.java_class("java.util.regex.Pattern").compile(value)
        except (Py4JJavaError, PySparkException) as e:
            raise self.wrong(f"'{value}' is no regular expression: {first_line(e)}") from None
        return str(value)

    def regexes(self) -> list[str]:
        values = self.need("regex_list")
        if not isinstance(values, list) or not values:
            raise self.wrong("regex_list is no list of regular expressions")
        return [self.regex(value) for value in values]

    def whole(self, argument: str) -> int | None:
        value = self.get(argument)
        if value is not None and (isinstance(value, bool) or int(value) != value):
            raise self.wrong(f"{argument} = {value!r} is no whole number")
        return None if value is None else int(value)

    def seen(self, columns: Iterable[Column], ignored: Mapping[str, Callable[..., Column]]) -> Column:
        """Which rows `ignore_row_if` leaves in sight; its default is the first of `ignored`."""
        which = self.get("ignore_row_if", next(iter(ignored)))
        if which not in ignored:
            raise self.wrong(f"ignore_row_if = '{which}'; known: {', '.join(ignored)}")
        self.sight = ignored[which]([column.isNull() for column in columns])
        return self.sight

    def condition(self) -> Column | None:
        """`row_condition`: SQL for Spark, or one of Great Expectations' conditions."""
        found = self._rule.kwargs.get("row_condition")
        if found is None:
            return None
        if isinstance(found, dict):
            return self._condition(found)
        if self._rule.kwargs.get("condition_parser") != "spark":
            raise self.wrong("a row_condition in text is Spark SQL; say so: condition_parser = 'spark'")
        return F.expr(found)

    def _condition(self, found: dict[str, Any]) -> Column:
        kind = found.get("type")
        if kind in ("and", "or"):
            return reduce(and_ if kind == "and" else or_, map(self._condition, found["conditions"]))
        if kind == "pass_through":
            return F.expr(found["pass_through_filter"])
        if kind not in ("comparison", "nullity"):
            raise self.wrong(f"a row_condition of type '{kind}' is unknown")
        column, of = self.named(found["column"]["name"])
        if kind == "nullity":
            return column.isNull() if found["is_null"] else column.isNotNull()
        operator, value = found["operator"], found["parameter"]
        if operator in ("IN", "NOT_IN"):
            inside = column.isin(*[self.literal(each, of) for each in value])
            return inside if operator == "IN" else ~inside
        return _COMPARISONS[operator](column, self.literal(value, of))

    def wrong(self, what: str) -> ProjectError:
        return ProjectError(
            f"{self._rule.where}: {self._rule.type}: {what}",
            code="EXPECTATION_INVALID",
            where=self._rule.where,
        )
