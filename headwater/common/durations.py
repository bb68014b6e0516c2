"""Spans of time as people write them: `500ms`, `10s`, `1h30m`, `5 minutes`."""

from __future__ import annotations

import re
from datetime import timedelta

from headwater.errors import ConfError

MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_WORDS = r"days?|hours?|minutes?|seconds?|milliseconds?|microseconds?"
_PART = re.compile(rf"(\d+)\s*({_WORDS}|d|h|ms|us|m|s)\s*")


def parse(text: str) -> timedelta:
    """A span such as `24h`, `1m30s` or `5 minutes`.

    Raises:
        ValueError: it is no such span.
    """
    at, parts = 0, list(_PART.finditer(text.strip()))
    for part in parts:
        if part.start() != at:
            break
        at = part.end()
    if not parts or at != len(text.strip()):
        raise ValueError(f"'{text}' is no span of time; write one such as 500ms, 10s, 5m, 24h or 7d")
    try:
        return sum(int(part[1]) * _UNITS[_short(part[2])] for part in parts) * MICROSECOND
    except OverflowError:
        raise ValueError(f"'{text}' is longer than {timedelta.max.days} days") from None


def text(microseconds: int, *, parts: int = 2) -> str:
    """A span in its largest units: `0s`, `340ms`, `1m30s`; what is smaller than the last `parts` is cut."""
    left, said = microseconds, list[str]()
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count or said:
            said.append(f"{count}{unit}" if count else "")
        if len(said) == parts:
            break
    return "".join(said) or "0s"


def interval(text: str) -> timedelta:
    """A span as a definition or a configuration has it.

    Raises:
        ConfError: it is no such span.
    """
    try:
        return parse(text)
    except ValueError as e:
        raise ConfError(f"interval {e}", code="INTERVAL_INVALID") from None


def _short(unit: str) -> str:
    if unit.startswith(("mil", "mic")):
        return "ms" if unit.startswith("mil") else "us"
    return unit if unit in _UNITS else unit[0]
