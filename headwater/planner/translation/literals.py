"""Literals, as plans write them."""

from __future__ import annotations

import re

from headwater.planner.translation.kinds import (
    MICROSECONDS,
    VOID,
    Kind,
    Value,
    duck,
    require,
    text,
)

_UNITS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_INTERVAL = re.compile(r"(-?\d+)(?:\.(\d{1,6}))? (day|hour|minute|second)s?(?: |\Z)")


def literal(value: str | None, kind: Kind) -> Value:
    """A literal, as plans write it."""
    if kind == VOID:
        return Value("NULL", VOID)
    if value is None:
        return Value(f"CAST(NULL AS {duck(kind)})", kind)
    require(isinstance(kind, str) and kind != "binary")
    if kind == MICROSECONDS:
        return Value(f"CAST({_microseconds(value)} AS BIGINT)", kind)
    if kind == "string":
        return Value(text(value), kind)
    return Value(f"CAST({text(value)} AS {duck(kind)})", kind)


def _microseconds(value: str) -> int:
    """How long an interval is, in days and shorter; a number is one of microseconds."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    total, at = 0, 0
    for part in _INTERVAL.finditer(value):
        require(part.start() == at, value)
        at = part.end()
        fraction = int((part[2] or "").ljust(6, "0") or 0)
        require(not fraction or (part[3] == "second" and not part[1].startswith("-")), value)
        total += int(part[1]) * _UNITS[part[3]] + fraction
    require(at == len(value) and at > 0, value)
    return total
