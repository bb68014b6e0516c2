"""Where Kafka is read from, and how often: from the words of the command line to Spark's options."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater import spans
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
    """A span such as `500ms` or `5 minutes` (see `headwater.spans`) in milliseconds.

    Raises:
        ConfError: it is no such span.
    """
    try:
        return spans.parse(text) // 1000
    except ValueError as e:
        raise ConfError(f"interval {e}") from None


def starting(start: str) -> dict[str, str]:
    """Spark's option for where a source begins; a time is ISO 8601."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": start}
    return {
        "startingTimestamp": str(milliseconds(start)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
