"""Moments: the present, and times as people and intents write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from headwater.common.durations import MICROSECOND

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """What tells the time, and waits; a simulation has one of its own."""

    def now(self) -> datetime:
        """The present, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment, which no setting of the machine's clock changes."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


clock = Clock()


def now() -> datetime:
    """The present, in UTC."""
    return clock.now()


def milliseconds() -> int:
    """The present, in milliseconds since the epoch."""
    return int(now().timestamp() * 1000)


def of_microseconds(since: int) -> datetime:
    """A time in microseconds since the epoch, in UTC; the first or the last that Python has, beyond these."""
    first, last = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))
    low, high = ((end - EPOCH) // MICROSECOND for end in (first, last))
    return first if since <= low else last if since >= high else EPOCH + since * MICROSECOND


def text(at: datetime) -> str:
    """A time as intents pin it: ISO 8601 in UTC, with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def parse(text: str) -> datetime:
    """An ISO 8601 time, in UTC; one without a zone is UTC.

    Raises:
        ValueError: it is no such time.
    """
    at = datetime.fromisoformat(text)
    try:
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError(f"'{text}' lies beyond the years 1 to 9999") from None
