"""Moments: the present, and times as people and intents write them."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


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
