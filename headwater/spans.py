"""Spans of time as people write them (`500ms`, `10s`, `5m`, `1h30m`, `2d`), in whole microseconds."""

from __future__ import annotations

import re

_UNITS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_PART = re.compile(r"(\d+)(d|h|ms|us|m|s)")


def parse(text: str) -> int:
    """The microseconds of a span such as `24h` or `1m30s`.

    Raises:
        ValueError: it is no such span.
    """
    parts = _PART.findall(text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        raise ValueError(f"'{text}' is no span of time; write one such as 500ms, 10s, 5m, 24h or 7d")
    return sum(int(count) * _UNITS[unit] for count, unit in parts)


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
