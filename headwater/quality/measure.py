"""Expectations about many rows at once: what measures each, and what judges it.

They are measured in the pass that writes a batch, and judged before its commit. A share (`mostly`) is
judged over the newest batches that together hold at least `meta.window` rows, so that a batch of three
rows can't fail it; what they came to is kept in the table's commits, so that a restart judges the same.
What `meta.scope` = `batch` says of a whole (rows, mean, distinct values, …) is judged on each batch
that has rows. Measured are the rows that the table takes. They mean what they mean in Great
Expectations; a median or quantile is interpolated, as pandas does it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StringType, StructType

from headwater.common import times
from headwater.common.durations import parse
from headwater.errors import ProjectError
from headwater.project.rule import Rule
from headwater.quality import predicate
from headwater.quality.arguments import TIMES, Arguments
from headwater.storage.identity import Shares

_BUCKETS = 8  # a window's rows are kept in about so many parts

Judge = Callable[[Sequence[Any], datetime], str | None]  # what was found, where it is not as expected


@dataclass(frozen=True)
class Measure:
    """One rule that is judged on many rows at once.

    Attributes:
        rule: the expectation.
        metrics: aggregates over judged rows.
        judge: says from their values, and the batch's clock, what is wrong; None: nothing.
    """

    rule: Rule
    metrics: tuple[Column, ...]
    judge: Judge


@dataclass(frozen=True)
class Findings:
    """What came of a batch's measures.

    Attributes:
        shares: what the batches of each share's window came to.
        missed: {rule → what was found, and what was expected}.
    """

    shares: Shares = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)


def compile(rule: Rule, columns: StructType, taken: Column) -> Measure:
    """The measure of a rule.

    Args:
        rule: the expectation.
        columns: what the table's function returns.
        taken: which of the rows the table takes.

    Raises:
        ProjectError: the engine can't measure it, or it does not fit the table.
    """
    if rule.mostly < 1:
        fails, seen = predicate.judged(rule, columns)
        metrics = (F.count_if(taken & seen), F.count_if(taken & seen & fails))
        return Measure(rule, metrics, lambda _, __: None)
    if rule.type not in _KINDS:
        raise ProjectError(
            f"{rule.where}: {rule.type} can't be judged on batches",
            code="EXPECTATION_NOT_FOR_BATCHES",
            where=rule.where,
            hint="leave its scope at 'table', where headwater quality run judges it; known: "
            f"{', '.join(sorted(_KINDS))}",
        )
    arguments = Arguments(rule, columns)
    condition = arguments.condition()
    measure = _KINDS[rule.type](rule, arguments, taken if condition is None else taken & condition)
    arguments.check()
    return measure


def judge(
    measures: Sequence[Measure],
    values: Mapping[str, Sequence[Any]],
    before: Shares,
    clock: datetime,
    taken: int,
) -> Findings:
    """What the values of a batch's measures say.

    Args:
        measures: the table's.
        values: {rule → the values of its metrics}.
        before: what the windows held after the last batch.
        clock: the batch's.
        taken: how many of its rows the table takes.
    """
    shares, missed = dict[str, list[list[int]]](), dict[str, str]()
    for measure in measures:
        rule = measure.rule
        if rule.mostly < 1:
            seen, failed = map(int, values[rule.id])
            shares[rule.id] = _rolled(before.get(rule.id, []), seen, failed, rule.window)
            found = _share(shares[rule.id], rule)
        else:
            found = measure.judge(values[rule.id], clock) if taken else None
        if found is not None:
            missed[rule.id] = found
    return Findings(shares, missed)


def _rolled(buckets: list[list[int]], seen: int, failed: int, window: int) -> list[list[int]]:
    """The window with one more batch, without the oldest ones that it does not need."""
    found = [list(bucket) for bucket in buckets]
    if found and found[-1][0] < window / _BUCKETS:
        found[-1] = [found[-1][0] + seen, found[-1][1] + failed]
    else:
        found.append([seen, failed])
    while sum(rows for rows, _ in found[1:]) >= window:
        del found[0]
    return found


def _share(buckets: list[list[int]], rule: Rule) -> str | None:
    seen, failed = (sum(bucket[at] for bucket in buckets) for at in (0, 1))
    if seen < rule.window or (seen - failed) / seen >= rule.mostly:
        return None
    return f"{(seen - failed) / seen:.2%} of the last {seen:,} rows pass, {rule.mostly:.2%} expected"


def _rows(rule: Rule, c: Arguments, taken: Column) -> Measure:
    is_one = rule.type.endswith("to_equal")
    low, high = [c.need("value")] * 2 if is_one else [c.get("min_value"), c.get("max_value")]
    return Measure(rule, (F.count_if(taken),), _within(c, low, high, "rows"))


def _number(aggregate: Callable[[Column], Column], what: str) -> Callable[..., Measure]:
    def make(rule: Rule, c: Arguments, taken: Column) -> Measure:
        column, kind = c.column()
        if not isinstance(kind, NumericType):
            raise c.wrong(f"{c.need('column')} is {kind.simpleString()}, and this is for numbers")
        measured = aggregate(F.when(taken, column)).cast("double")
        return Measure(rule, (measured,), _within(c, c.get("min_value"), c.get("max_value"), what))

    return make


def _extreme(aggregate: Callable[[Column], Column], what: str) -> Callable[..., Measure]:
    def make(rule: Rule, c: Arguments, taken: Column) -> Measure:
        column, kind = c.column()
        low, high = c.get("min_value"), c.get("max_value")
        found = aggregate(F.when(taken, column))
        if isinstance(kind, NumericType):
            return Measure(rule, (found.cast("double"),), _within(c, low, high, what))
        if not isinstance(kind, TIMES):
            raise c.wrong(f"{c.need('column')} is {kind.simpleString()}; this is for numbers and times")
        for bound in (low, high):
            if bound is not None:
                c.literal(bound, kind)
        return Measure(rule, (F.unix_micros(found.cast("timestamp")),), _times(c, rule, low, high, what))

    return make


def _times(c: Arguments, rule: Rule, low: str | None, high: str | None, what: str) -> Judge:
    """Bounds in time, and `meta.max_age`: how far the value may lie behind the batch's clock."""
    bounds = [None if text is None else times.parse(text) for text in (low, high)]
    try:
        age = None if rule.max_age is None else parse(rule.max_age)
    except ValueError as e:
        raise c.wrong(f"meta.max_age: {e}") from None
    if age is None and bounds == [None, None]:
        raise c.wrong("min_value, max_value and meta.max_age are all missing")
    is_outside = _outside(c, *bounds)

    def judge(values: Sequence[Any], clock: datetime) -> str | None:
        if values[0] is None:
            return None
        at = times.of_microseconds(int(values[0]))
        if age is not None and clock - at > age:
            return f"{what} {at:%Y-%m-%dT%H:%M:%SZ} is older than {rule.max_age}"
        if is_outside(at):
            return f"{what} {at:%Y-%m-%dT%H:%M:%SZ}, expected {_range(low, high)}"
        return None

    return judge


def _distinct(c: Arguments, taken: Column) -> tuple[Column, DataType]:
    column, kind = c.column()
    if not isinstance(kind, NumericType | StringType):
        raise c.wrong(f"{c.need('column')} is {kind.simpleString()}; this is for numbers and strings")
    plain = column.cast("double") if isinstance(kind, NumericType) else column
    return F.collect_set(F.when(taken, plain)), kind


def _unique_count(rule: Rule, c: Arguments, taken: Column) -> Measure:
    found, _ = _distinct(c, taken)
    judge = _within(c, c.get("min_value"), c.get("max_value"), "distinct values")
    return Measure(rule, (F.size(found),), judge)


def _unique_share(rule: Rule, c: Arguments, taken: Column) -> Measure:
    found, _ = _distinct(c, taken)
    share = F.size(found) / F.nullif(F.count(F.when(taken, c.column()[0])), F.lit(0))
    return Measure(rule, (share,), _within(c, c.get("min_value"), c.get("max_value"), "distinct share"))


def _set(unexpected: Callable[[set[Any], set[Any]], set[Any]]) -> Callable[..., Measure]:
    """A rule about the distinct values; `unexpected` says which break it, from what is and should be."""

    def make(rule: Rule, c: Arguments, taken: Column) -> Measure:
        found, kind = _distinct(c, taken)
        c.literals("value_set", kind)
        wanted = {value for value in c.need("value_set") if value is not None}

        def judge(values: Sequence[Any], clock: datetime) -> str | None:
            wrong = unexpected(set(values[0]), wanted)
            return f"{len(values[0])} distinct values; {len(wrong)} are not as expected" if wrong else None

        return Measure(rule, (found,), judge)

    return make


def _quantiles(rule: Rule, c: Arguments, taken: Column) -> Measure:
    (column, kind), ranges = c.column(), c.need("quantile_ranges")
    c.used.add("allow_relative_error")
    if not isinstance(kind, NumericType):
        raise c.wrong(f"{c.need('column')} is {kind.simpleString()}, and this is for numbers")
    shares, bounds = ranges["quantiles"], ranges["value_ranges"]
    if len(shares) != len(bounds):
        raise c.wrong("quantiles and value_ranges are not of one length")
    found = F.percentile(F.when(taken, column).cast("double"), F.array(*map(F.lit, shares)))

    def judge(values: Sequence[Any], clock: datetime) -> str | None:
        for share, value, (low, high) in zip(shares, values[0] or (), bounds, strict=False):
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                return f"quantile {share:g} is {value:g}, expected {_range(low, high)}"
        return None

    return Measure(rule, (found,), judge)


def _within(c: Arguments, low: Any, high: Any, what: str) -> Judge:
    if low is None and high is None:
        raise c.wrong("min_value and max_value are both missing")
    for bound in (low, high):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
            raise c.wrong(f"{bound!r} is no number")
    is_outside = _outside(c, low, high)

    def judge(values: Sequence[Any], clock: datetime) -> str | None:
        if values[0] is None or not is_outside(values[0]):
            return None
        return f"{what} {values[0]:g}, expected {_range(low, high)}"

    return judge


def _outside(c: Arguments, low: Any, high: Any) -> Callable[[Any], bool]:
    """Says whether a value lies outside of a rule's bounds, which may be strict: NaN always does."""
    above = operator.gt if c.get("strict_min") else operator.ge
    below = operator.lt if c.get("strict_max") else operator.le
    return lambda at: not ((low is None or above(at, low)) and (high is None or below(at, high)))


def _range(low: Any, high: Any) -> str:
    ends = f"from {'any' if low is None else low} to {'any' if high is None else high}"
    return f"{low}" if low == high else ends


_KINDS: dict[str, Callable[[Rule, Arguments, Column], Measure]] = {
    "expect_table_row_count_to_be_between": _rows,
    "expect_table_row_count_to_equal": _rows,
    "expect_column_mean_to_be_between": _number(F.avg, "mean"),
    "expect_column_median_to_be_between": _number(F.median, "median"),
    "expect_column_sum_to_be_between": _number(F.sum, "sum"),
    "expect_column_stdev_to_be_between": _number(F.stddev_samp, "standard deviation"),
    "expect_column_min_to_be_between": _extreme(F.min, "minimum"),
    "expect_column_max_to_be_between": _extreme(F.max, "maximum"),
    "expect_column_quantile_values_to_be_between": _quantiles,
    "expect_column_unique_value_count_to_be_between": _unique_count,
    "expect_column_proportion_of_unique_values_to_be_between": _unique_share,
    "expect_column_distinct_values_to_be_in_set": _set(lambda seen, wanted: seen - wanted),
    "expect_column_distinct_values_to_contain_set": _set(lambda seen, wanted: wanted - seen),
    "expect_column_distinct_values_to_equal_set": _set(lambda seen, wanted: seen ^ wanted),
}
