"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse(text: str) -> datetime:
    """An ISO 8601 time, in UTC; one without a zone is UTC.

    Raises:
        ValueError: it is no such time.
    """
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
