"""Row-level expectations as Spark predicates: true where a row fails.

They mean what Great Expectations means on Spark: a NULL fails nothing but `not_be_null`, comparisons
are Spark's (NaN is greater than any number), and `row_condition` leaves rows out of an expectation's
sight. Whatever would fail on some row while the stream runs is refused here, when the project loads: an
unknown column, a bound of another type, a regular expression that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, NumericType, StringType, StructType

from headwater.errors import ProjectError
from headwater.project.rule import CONDITION, OF_ROWS, Rule
from headwater.quality.arguments import ALL, PAIR, TIMES, Arguments


def knows(type: str) -> bool:
    """Whether an expectation of this type is told from single rows."""
    return type in _COMPILERS


def failed(rule: Rule, columns: StructType) -> Column:
    """A predicate over a table's columns: true where a row fails the rule, false elsewhere, never NULL.

    Raises:
        ProjectError: the expectation is not row by row, or does not fit the table.
    """
    return judged(rule, columns)[0]


def judged(rule: Rule, columns: StructType) -> tuple[Column, Column]:
    """Two predicates, never NULL: whether a row fails the rule, and whether the rule sees it at all.

    Raises:
        ProjectError: the expectation is not row by row, or does not fit the table.
    """
    if rule.type not in _COMPILERS:
        raise ProjectError(
            f"{rule.where}: {rule.type} can't be told from single rows",
            code="EXPECTATION_NOT_FOR_BATCHES",
            where=rule.where,
            hint="write meta.scope = 'table', for headwater quality run to judge it; known: "
            f"{', '.join(sorted(_COMPILERS))}",
        )
    arguments = Arguments(rule, columns)
    fails = _COMPILERS[rule.type](arguments)
    arguments.check()
    condition = arguments.condition()
    seen = arguments.sight
    if seen is None:
        column, _ = arguments.column()
        seen = F.lit(True) if rule.type in _OF_NULL else column.isNotNull()
    if condition is not None:
        fails, seen = condition & fails, condition & seen
    return F.coalesce(fails, F.lit(False)), F.coalesce(seen, F.lit(False))


def _not_null(c: Arguments) -> Column:
    return c.column()[0].isNull()


def _null(c: Arguments) -> Column:
    return c.column()[0].isNotNull()


def _outside(c: Arguments, value: Column, bound: Callable[[str], Column | None]) -> Column:
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


def _between(c: Arguments) -> Column:
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


def _in_set(c: Arguments) -> Column:
    column, kind = c.column()
    return ~column.isin(*c.literals("value_set", kind))


def _not_in_set(c: Arguments) -> Column:
    column, kind = c.column()
    return column.isin(*c.literals("value_set", kind))


def _regex(c: Arguments) -> Column:
    return ~c.text().rlike(c.regex(c.need("regex")))


def _not_regex(c: Arguments) -> Column:
    return c.text().rlike(c.regex(c.need("regex")))


def _regex_list(c: Arguments) -> Column:
    column, regexes = c.text(), c.regexes()
    how = c.get("match_on", "any")
    if how not in ("any", "all"):
        raise c.wrong(f"match_on = '{how}'; known: any, all")
    matches = [column.rlike(regex) for regex in regexes]
    return ~reduce(or_ if how == "any" else and_, matches)


def _not_regex_list(c: Arguments) -> Column:
    column = c.text()
    return reduce(or_, [column.rlike(regex) for regex in c.regexes()])


def _like(c: Arguments) -> Column:
    return ~c.text().like(str(c.need("like_pattern")))


def _not_like(c: Arguments) -> Column:
    return c.text().like(str(c.need("like_pattern")))


def _length_between(c: Arguments) -> Column:
    def bound(name: str) -> Column | None:
        value = c.whole(name)
        return None if value is None else F.lit(value)

    return _outside(c, F.length(c.text()), bound)


def _length(c: Arguments) -> Column:
    value = c.whole("value")
    if value is None:
        raise c.wrong("value is missing; add it to kwargs")
    return F.length(c.text()) != value


def _of_type(c: Arguments) -> Column:
    """A column has one type: one of another type is refused, and then no row can fail."""
    _, kind = c.column()
    wanted = c.get("type_list") or [c.need("type_")]
    if type(kind).__name__ not in wanted:
        raise c.wrong(f"{c.need('column')} is {type(kind).__name__}, not {' or '.join(wanted)}")
    return F.lit(False)


def _pair(c: Arguments) -> tuple[Column, Column, DataType, Column]:
    (a, of_a), (b, of_b) = c.column("column_A"), c.column("column_B")
    if _family(of_a) != _family(of_b):
        raise c.wrong(f"a {of_a.simpleString()} can't be compared with a {of_b.simpleString()}")
    return a, b, of_a, c.seen((a, b), PAIR)


def _family(kind: DataType) -> str:
    if isinstance(kind, NumericType):
        return "number"
    return "time" if isinstance(kind, TIMES) else kind.typeName()


def _pair_equal(c: Arguments) -> Column:
    a, b, _, seen = _pair(c)
    return seen & ~a.eqNullSafe(b)


def _pair_greater(c: Arguments) -> Column:
    a, b, _, seen = _pair(c)
    return seen & ~(((a >= b) | a.eqNullSafe(b)) if c.get("or_equal") else a > b)


def _pair_in_set(c: Arguments) -> Column:
    a, b, of_a, seen = _pair(c)
    of_b = c.column("column_B")[1]
    pairs = c.need("value_pairs_set")

    def same(column: Column, value: Any, kind: DataType) -> Column:
        return column.isNull() if value is None else column.eqNullSafe(c.literal(value, kind))

    if not isinstance(pairs, list) or not pairs or any(len(pair) != 2 for pair in pairs):
        raise c.wrong("value_pairs_set is no list of pairs")
    return seen & ~reduce(or_, [same(a, x, of_a) & same(b, y, of_b) for x, y in pairs])


def _sum(c: Arguments) -> Column:
    columns = c.columns()
    for _, kind in columns:
        if not isinstance(kind, NumericType):
            raise c.wrong(f"a {kind.simpleString()} can't be summed")
    seen = c.seen([column for column, _ in columns], ALL)
    terms = []
    for column, kind in columns:
        term = F.coalesce(column, F.lit(0))
        terms.append(term.cast("decimal(38,0)") if isinstance(kind, IntegralType) else term)
    total = c.need("sum_total")
    return seen & (reduce(lambda x, y: x + y, terms) != F.lit(total))


def _unique_within_record(c: Arguments) -> Column:
    columns = [column for column, _ in c.columns()]
    seen = c.seen(columns, ALL)
    pairs = [a.eqNullSafe(b) for at, a in enumerate(columns) for b in columns[at + 1 :]]
    return seen & reduce(or_, pairs)


def _condition(c: Arguments) -> Column:
    query = str(c.need("unexpected_rows_query"))
    if not query.startswith(OF_ROWS):
        raise c.wrong(f"it can be told from single rows only as {OF_ROWS}…")
    c.sight = F.lit(True)
    return F.expr(query.removeprefix(OF_ROWS).replace("{{", "{").replace("}}", "}"))


_OF_NULL = ("expect_column_values_to_not_be_null", "expect_column_values_to_be_null")
_COMPILERS: dict[str, Callable[[Arguments], Column]] = {
    CONDITION: _condition,
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
