"""How far the times that a query computes can lie from the columns that it computes them of.

Windows, `date_trunc`, dates, added intervals and differences of times, by interval arithmetic over Spark's
expressions. Sessions are in UTC, so a day is 24 hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.planner.nodes import Node

TIMES = ("timestamp", "timestamp_ntz")

Kind = Literal["time", "date", "length", "number"]
Named = Mapping[int, Sequence[Node]]  # {column that a query names → what it is, row by row one of these}

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# Of each unit of `date_trunc` the greatest length; and its other names.
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 3_600 * _SECOND,
    **dict.fromkeys(("DAY", "DD"), _DAY),
    "WEEK": 7 * _DAY,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * _DAY),
    "QUARTER": 92 * _DAY,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * _DAY),
}


@dataclass(frozen=True)
class Span:
    """Columns of time, added and taken away, and from how many to how many microseconds more.

    Attributes:
        kind: what the expression is: a time, a date, a length of time, or a plain number of microseconds.
        columns: {column, by Spark's `exprId` → how often it is added, below zero: taken away}.
        least, most: the microseconds.
    """

    kind: Kind
    columns: Mapping[int, int]
    least: int
    most: int

    def plus(self, other: Span, sign: int = 1) -> Span:
        """The sum, or with -1 the difference, of two."""
        times = {
            each: self.columns.get(each, 0) + sign * other.columns.get(each, 0)
            for each in {**self.columns, **other.columns}
        }
        ends = (sign * other.least, sign * other.most)
        return Span(
            self.kind,
            {column: often for column, often in times.items() if often},
            self.least + min(ends),
            self.most + max(ends),
        )

    def wider(self, least: int, most: int, kind: Kind) -> Span:
        """With so many microseconds more, as another kind."""
        return Span(kind, self.columns, self.least + least, self.most + most)


def of(expression: Node, named: Named) -> Span | None:
    """The span of an expression; None: it is no time, or computed in another way.

    Args:
        expression: of an analysed plan.
        named: the columns that the query has named below.
    """
    children = expression.children
    match expression.kind:
        case "AttributeReference":
            if expression.id in named:
                return _hull(of(each, named) for each in named[expression.id])
            is_time = expression.fields["dataType"] in TIMES
            return Span("time", {expression.id: 1}, 0, 0) if is_time else None
        case "Literal":
            return _literal(expression)
        case "Alias" | "KnownNullable":
            return of(children[0], named)
        case "GetStructField":
            found = parts(children[0], named)
            return found[int(expression.fields["ordinal"])] if found else None
        case "PreciseTimestampConversion":  # a time as its microseconds, and back
            inner = of(children[0], named)
            return inner and inner.wider(0, 0, "number" if inner.kind == "time" else "time")
        case "Cast":
            return _cast(of(children[0], named), str(expression.fields["dataType"]))
        case "TruncTimestamp":
            return _truncated(children[0], of(children[1], named))
        case "UnaryMinus":
            inner = of(children[0], named)
            return inner and Span(inner.kind, {}, 0, 0).plus(inner, -1)
        case "Add" | "TimestampAddInterval":
            return _sum(children, named, 1)
        case "Subtract":
            return _sum(children, named, -1)
        case "SubtractTimestamps":
            apart = _sum(children, named, -1)
            return apart and apart.wider(0, 0, "length")
        case "CaseWhen":
            length = _remainder(children, named)
            return Span("number", {}, 0, length - 1) if length else None
    return None


def parts(expression: Node, named: Named) -> list[Span | None]:
    """The spans of a struct's fields, as of a window; none: it is no struct that the query makes."""
    match expression.kind:
        case "AttributeReference":
            found = [parts(each, named) for each in named.get(expression.id, ())]
            return [_hull(of_each) for of_each in zip(*found, strict=True)] if all(found) else []
        case "Alias" | "KnownNullable":
            return parts(expression.children[0], named)
        case "CreateNamedStruct":
            return [of(each, named) for each in expression.children[1::2]]
    return []


def _hull(spans: Iterable[Span | None]) -> Span | None:
    """What holds of all of these."""
    first, *others = spans
    for each in others:
        if first is None or each is None or (each.kind, each.columns) != (first.kind, first.columns):
            return None
        first = Span(first.kind, first.columns, min(first.least, each.least), max(first.most, each.most))
    return first


def _literal(literal: Node) -> Span | None:
    """A number, or an interval of days and shorter."""
    kind, value = str(literal.fields["dataType"]), literal.fields.get("value")
    is_length = kind.startswith("interval") and "month" not in kind and "year" not in kind
    try:
        number = int(value) if value is not None and (is_length or kind in ("integer", "long")) else None
    except ValueError:  # a calendar's interval
        return None
    return None if number is None else Span("length" if is_length else "number", {}, number, number)


def _cast(inner: Span | None, kind: str) -> Span | None:
    if inner and inner.kind in ("time", "date") and kind in TIMES:
        return inner.wider(0, 0, "time")
    if inner and inner.kind in ("time", "date") and kind == "date":
        return inner.wider(1 - _DAY if inner.kind == "time" else 0, 0, "date")
    same = {"number": kind in ("integer", "long"), "length": kind.startswith("interval") and "second" in kind}
    return inner if inner and same.get(inner.kind) else None


def _truncated(unit: Node, time: Span | None) -> Span | None:
    length = _UNITS.get(str(unit.fields.get("value")).upper()) if unit.kind == "Literal" else None
    return time.wider(1 - length, 0, "time") if time and time.kind == "time" and length else None


def _sum(children: Sequence[Node], named: Named, sign: int) -> Span | None:
    one, other = (of(each, named) for each in children)
    return one.plus(other, sign) if one and other else None


def _remainder(children: Sequence[Node], named: Named) -> int | None:
    """The length of windows, where an expression is how far a time lies in its own: a remainder that is made
    positive, `CASE WHEN r < 0 THEN r + length ELSE r`."""
    match children:
        case (Node("LessThan", _, (one, zero)), Node("Add", _, (two, added)), Node("Remainder") as three):
            length = of(three.children[1], named)
            if one == two == three and of(zero, named) == Span("number", {}, 0, 0) and length:
                return length.most if length == of(added, named) and not length.columns else None
    return None
