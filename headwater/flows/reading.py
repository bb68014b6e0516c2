"""Where Kafka is read from, and how often: from the words of the command line to Spark's options."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from headwater.errors import ConfError


def milliseconds(start: str) -> int:
    """An ISO 8601 time as milliseconds since the epoch; one without a zone is UTC.

    Raises:
        ConfError: it is not such a time.
    """
    try:
        at = datetime.fromisoformat(start)
    except ValueError:
        raise ConfError(
            f"--start {start}: write earliest, latest or a time like 2026-01-31T06:00:00Z"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def interval(text: str) -> int:
    """An interval (`500ms`, `2s`, `1m`, `1h`, `1d`, or as Spark writes it: `5 minutes`) in milliseconds.

    Raises:
        ConfError: it is no such interval.
    """
    found = re.fullmatch(r"(\d+)\s*(ms|[smhd]|milliseconds?|seconds?|minutes?|hours?|days?)", text.strip())
    if not found:
        raise ConfError(f"interval '{text}': write one such as 500ms, 2s or 1m")
    unit = "ms" if found[2].startswith(("ms", "mil")) else found[2][0]
    return int(found[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]


def starting(start: str) -> dict[str, str]:
    """Spark's option for where a source begins; a time is ISO 8601."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": start}
    return {
        "startingTimestamp": str(milliseconds(start)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
