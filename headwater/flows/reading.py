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


def interval(text: str) -> str:
    """An interval as Spark writes it (`500 milliseconds`), from that or from a short form (`500ms`, `2s`).

    Raises:
        ConfError: it is neither.
    """
    short = re.fullmatch(r"(\d+)\s*(ms|s|m)", text.strip())
    if short:
        return f"{short[1]} { {'ms': 'milliseconds', 's': 'seconds', 'm': 'minutes'}[short[2]] }"
    if re.fullmatch(r"\d+ (milli)?seconds?|\d+ minutes?", text.strip()):
        return text.strip()
    raise ConfError(f"trigger '{text}': write an interval such as 500ms, 2s or 1m")


def starting(start: str) -> dict[str, str]:
    """Spark's option for where a source begins; a time is ISO 8601."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": start}
    return {
        "startingTimestamp": str(milliseconds(start)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
