"""Row-level expectations as Spark predicates: true where a row fails.

They mean what Great Expectations means on Spark: a NULL fails nothing but `not_be_null`, comparisons
are Spark's (NaN is greater than any number), and `row_condition` leaves rows out of an expectation's
sight. Whatever would fail on some row while the stream runs is refused here, when the project loads: an
unknown column, a bound of another type, a regular expression that is none.
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
    IntegralType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater import jvm, plans
from headwater.errors import ProjectError
from headwater.quality.suite import Rule

_TIMES = (DateType, TimestampType, TimestampNTZType)
_CONDITION = ("row_condition", "condition_parser")
_COMPARISONS: dict[str, Callable[[Column, Any], Column]] = {
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def failed(rule: Rule, columns: StructType) -> Column:
    """A predicate over a table's columns: true where a row fails the rule, false elsewhere, never NULL.

    Raises:
        ProjectError: the expectation is not row by row, or does not fit the table.
    """
    if rule.type not in _COMPILERS:
        raise ProjectError(
            f"{rule.where}: {rule.type} can't be told from single rows; "
            f"known: {', '.join(sorted(_COMPILERS))}"
        )
    compiler = _Compiler(rule, columns)
    fails = _COMPILERS[rule.type](compiler)
    unused = set(rule.kwargs) - compiler.used - {*_CONDITION}
    if unused:
        raise ProjectError(
            f"{rule.where}: {rule.type} has no argument '{sorted(unused)[0]}'; "
            f"known: {', '.join(sorted(compiler.used))}"
        )
    condition = compiler.condition()
    if condition is not None:
        fails = condition & fails
    return F.coalesce(fails, F.lit(False))


class _Compiler:
    """One rule on its way to a predicate: its arguments, taken and checked."""

    def __init__(self, rule: Rule, columns: StructType) -> None:
        self._rule = rule
        self._columns = columns
        self.used: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        return self._rule.kwargs.get(name, default)

    def need(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise self.wrong(f"{name} is missing; add it to kwargs")
        return found

    def column(self, argument: str = "column") -> tuple[Column, DataType]:
        return self._named(self.need(argument))

    def columns(self) -> list[tuple[Column, DataType]]:
        names = self.need("column_list")
        if not isinstance(names, list) or len(names) < 2:
            raise self.wrong("column_list has fewer than two columns")
        return [self._named(name) for name in names]

    def _named(self, name: str) -> tuple[Column, DataType]:
        if name not in self._columns.fieldNames():
            known = ", ".join(self._columns.fieldNames())
            raise self.wrong(f"no column '{name}'; known: {known}")
        return plans.named(name), self._columns[name].dataType

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
        if isinstance(kind, _TIMES) and isinstance(value, str):
            try:
                (date if isinstance(kind, DateType) else datetime).fromisoformat(value)
            except ValueError:
                raise self.wrong(f"'{value}' is no {kind.simpleString()}; write it as ISO 8601") from None
            return F.lit(value).cast(kind)
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
            raise self.wrong(f"'{value}' is no regular expression: {jvm.first_line(e)}") from None
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
        return ignored[which]([column.isNull() for column in columns])

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
        column, of = self._named(found["column"]["name"])
        if kind == "nullity":
            return column.isNull() if found["is_null"] else column.isNotNull()
        operator, value = found["operator"], found["parameter"]
        if operator in ("IN", "NOT_IN"):
            inside = column.isin(*[self.literal(each, of) for each in value])
            return inside if operator == "IN" else ~inside
        return _COMPARISONS[operator](column, self.literal(value, of))

    def wrong(self, what: str) -> ProjectError:
        return ProjectError(f"{self._rule.where}: {self._rule.type}: {what}")


def _not_null(c: _Compiler) -> Column:
    return c.column()[0].isNull()


def _null(c: _Compiler) -> Column:
    return c.column()[0].isNotNull()


def _outside(c: _Compiler, value: Column, bound: Callable[[str], Column | None]) -> Column:
    low, high = bound("min_value"), bound("max_value")
    if low is None and high is None:
        raise c.wrong("min_value and max_value are both missing")
    within = []
    if low is not None:
        within.append(value > low if c.get("strict_min") else value >= low)
    if high is not None:
        within.append(value < high if c.get("strict_max") else value <= high)
    c.used |= {"strict_min", "strict_max"}
    return ~reduce(and_, within)


def _between(c: _Compiler) -> Column:
    column, kind = c.column()
    low, high = c.get("min_value"), c.get("max_value")
    if low is not None and high is not None and type(low) is type(high) and low > high:
        raise c.wrong(f"min_value {low!r} is above max_value {high!r}")

    if isinstance(kind, StringType):
        raise c.wrong(f"{c.need('column')} is a string, and Great Expectations orders numbers and times only")

    def bound(name: str) -> Column | None:
        value = c.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = float(value)  # as Great Expectations reads it
        return None if value is None else c.literal(value, kind)

    return _outside(c, column, bound)


def _in_set(c: _Compiler) -> Column:
    column, kind = c.column()
    return ~column.isin(*c.literals("value_set", kind))


def _not_in_set(c: _Compiler) -> Column:
    column, kind = c.column()
    return column.isin(*c.literals("value_set", kind))


def _regex(c: _Compiler) -> Column:
    return ~c.text().rlike(c.regex(c.need("regex")))


def _not_regex(c: _Compiler) -> Column:
    return c.text().rlike(c.regex(c.need("regex")))


def _regex_list(c: _Compiler) -> Column:
    column, regexes = c.text(), c.regexes()
    how = c.get("match_on", "any")
    if how not in ("any", "all"):
        raise c.wrong(f"match_on = '{how}'; known: any, all")
    matches = [column.rlike(regex) for regex in regexes]
    return ~reduce(or_ if how == "any" else and_, matches)


def _not_regex_list(c: _Compiler) -> Column:
    column = c.text()
    return reduce(or_, [column.rlike(regex) for regex in c.regexes()])


def _like(c: _Compiler) -> Column:
    return ~c.text().like(str(c.need("like_pattern")))


def _not_like(c: _Compiler) -> Column:
    return c.text().like(str(c.need("like_pattern")))


def _length_between(c: _Compiler) -> Column:
    def bound(name: str) -> Column | None:
        value = c.whole(name)
        return None if value is None else F.lit(value)

    return _outside(c, F.length(c.text()), bound)


def _length(c: _Compiler) -> Column:
    value = c.whole("value")
    if value is None:
        raise c.wrong("value is missing; add it to kwargs")
    return F.length(c.text()) != value


def _of_type(c: _Compiler) -> Column:
    """A column has one type: one of another type is refused, and then no row can fail."""
    _, kind = c.column()
    wanted = c.need("type_list") if "type_list" in c._rule.kwargs else [c.need("type_")]
    if type(kind).__name__ not in wanted:
        raise c.wrong(f"{c.need('column')} is {type(kind).__name__}, not {' or '.join(wanted)}")
    return F.lit(False)


_PAIR: dict[str, Callable[[list[Column]], Column]] = {
    "both_values_are_missing": lambda nulls: ~reduce(and_, nulls),
    "either_value_is_missing": lambda nulls: ~reduce(or_, nulls),
    "neither": lambda nulls: F.lit(True),
}
_ALL: dict[str, Callable[[list[Column]], Column]] = {
    "all_values_are_missing": lambda nulls: ~reduce(and_, nulls),
    "any_value_is_missing": lambda nulls: ~reduce(or_, nulls),
    "never": lambda nulls: F.lit(True),
}


def _pair(c: _Compiler) -> tuple[Column, Column, DataType, Column]:
    (a, of_a), (b, of_b) = c.column("column_A"), c.column("column_B")
    if _family(of_a) != _family(of_b):
        raise c.wrong(f"a {of_a.simpleString()} can't be compared with a {of_b.simpleString()}")
    return a, b, of_a, c.seen((a, b), _PAIR)


def _family(kind: DataType) -> str:
    if isinstance(kind, NumericType):
        return "number"
    return "time" if isinstance(kind, _TIMES) else kind.typeName()


def _pair_equal(c: _Compiler) -> Column:
    a, b, _, seen = _pair(c)
    return seen & ~a.eqNullSafe(b)


def _pair_greater(c: _Compiler) -> Column:
    a, b, _, seen = _pair(c)
    return seen & ~(((a >= b) | a.eqNullSafe(b)) if c.get("or_equal") else a > b)


def _pair_in_set(c: _Compiler) -> Column:
    a, b, of_a, seen = _pair(c)
    of_b = c.column("column_B")[1]
    pairs = c.need("value_pairs_set")

    def same(column: Column, value: Any, kind: DataType) -> Column:
        return column.isNull() if value is None else column.eqNullSafe(c.literal(value, kind))

    if not isinstance(pairs, list) or not pairs or any(len(pair) != 2 for pair in pairs):
        raise c.wrong("value_pairs_set is no list of pairs")
    return seen & ~reduce(or_, [same(a, x, of_a) & same(b, y, of_b) for x, y in pairs])


def _sum(c: _Compiler) -> Column:
    columns = c.columns()
    for _, kind in columns:
        if not isinstance(kind, NumericType):
            raise c.wrong(f"a {kind.simpleString()} can't be summed")
    seen = c.seen([column for column, _ in columns], _ALL)
    terms = []
    for column, kind in columns:
        term = F.coalesce(column, F.lit(0))
        terms.append(term.cast("decimal(38,0)") if isinstance(kind, IntegralType) else term)
    total = c.need("sum_total")
    return seen & (reduce(lambda x, y: x + y, terms) != F.lit(total))


def _unique_within_record(c: _Compiler) -> Column:
    columns = [column for column, _ in c.columns()]
    seen = c.seen(columns, _ALL)
    pairs = [a.eqNullSafe(b) for at, a in enumerate(columns) for b in columns[at + 1 :]]
    return seen & reduce(or_, pairs)


_COMPILERS: dict[str, Callable[[_Compiler], Column]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_null": _null,
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_match_regex": _regex,
    "expect_column_values_to_not_match_regex": _not_regex,
    "expect_column_values_to_match_regex_list": _regex_list,
    "expect_column_values_to_not_match_regex_list": _not_regex_list,
    "expect_column_values_to_match_like_pattern": _like,
    "expect_column_values_to_not_match_like_pattern": _not_like,
    "expect_column_value_lengths_to_be_between": _length_between,
    "expect_column_value_lengths_to_equal": _length,
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_in_type_list": _of_type,
    "expect_column_pair_values_to_be_equal": _pair_equal,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_greater,
    "expect_column_pair_values_to_be_in_set": _pair_in_set,
    "expect_multicolumn_sum_to_equal": _sum,
    "expect_select_column_values_to_be_unique_within_record": _unique_within_record,
}
