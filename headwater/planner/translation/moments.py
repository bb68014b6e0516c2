"""Functions of times. All are in UTC, so a day has 24 hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.planner.nodes import Node
from headwater.planner.translation.kinds import (
    MICROSECONDS,
    TIMES,
    WHOLE,
    Value,
    of_json,
    require,
)

_OF_TIMES = {"Year": "year", "Month": "month", "DayOfMonth": "day", "Hour": "hour", "Minute": "minute"}
_OF_TIMES |= {"Second": "second"}
_FROM_NUMBER = {"SecondsToTimestamp": 1_000_000, "MillisToTimestamp": 1_000, "MicrosToTimestamp": 1}
_TO_NUMBER = {"UnixSeconds": 1_000_000, "UnixMillis": 1_000, "UnixMicros": 1}
_TRUNCATED = {
    "YEAR": "year",
    "YYYY": "year",
    "YY": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "MM": "month",
}
_TRUNCATED |= {"MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute"}
_TRUNCATED |= {"SECOND": "second"}


def _later(node: Node, children: Sequence[Value]) -> Value:
    time, span = children
    require(time.kind in TIMES and span.kind == MICROSECONDS)
    return Value(f"make_timestamp(epoch_us({time.sql}) + {span.sql})", time.kind)


def _apart(node: Node, children: Sequence[Value]) -> Value:
    one, other = children
    require(one.kind in TIMES and one.kind == other.kind and not node.fields.get("legacyInterval", True))
    return Value(f"(epoch_us({one.sql}) - epoch_us({other.sql}))", MICROSECONDS)


def _as_number(node: Node, children: Sequence[Value]) -> Value:
    (value,), to = children, of_json(node.fields["toType"])
    if to == "long" and value.kind in TIMES:
        return Value(f"epoch_us({value.sql})", "long")
    require(to in TIMES and value.kind == "long")
    return Value(f"make_timestamp({value.sql})", to)


def _from_number(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(value.kind in WHOLE)
    return Value(f"make_timestamp(CAST({value.sql} AS BIGINT) * {_FROM_NUMBER[node.kind]})", "timestamp")


def _to_number(node: Node, children: Sequence[Value]) -> Value:
    (value,), unit = children, _TO_NUMBER[node.kind]
    require(value.kind == "timestamp")
    whole = f"epoch_us({value.sql})"
    return Value(
        whole if unit == 1 else f"(({whole} - (({whole} % {unit}) + {unit}) % {unit}) // {unit})", "long"
    )


def _part(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(
        value.kind in ("date", *TIMES)
        and (value.kind in TIMES or node.kind in ("Year", "Month", "DayOfMonth"))
    )
    return Value(f"CAST({_OF_TIMES[node.kind]}({value.sql}) AS INTEGER)", "integer")


def _truncated(node: Node, children: Sequence[Value]) -> Value:
    unit, value = node.children[0], children[1]
    require(unit.kind == "Literal" and value.kind in TIMES)
    found = _TRUNCATED.get(str(unit.fields["value"]).upper())
    require(found is not None, "a unit of date_trunc")
    return Value(f"CAST(date_trunc('{found}', {value.sql}) AS TIMESTAMP)", value.kind)


OF_TIMES: dict[str, Callable[[Node, Sequence[Value]], Value]] = {
    "PreciseTimestampConversion": _as_number,
    "SubtractTimestamps": _apart,
    "TimeAdd": _later,
    "TimestampAddInterval": _later,
    "TruncTimestamp": _truncated,
    **dict.fromkeys(_FROM_NUMBER, _from_number),
    **dict.fromkeys(_TO_NUMBER, _to_number),
    **dict.fromkeys(_OF_TIMES, _part),
}
