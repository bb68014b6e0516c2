"""Time moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from headwater.common import durations, times


class Clock:
    """What a project's flows take for the present.

    Args:
        at: where it stands, until it is moved: a time, or one in ISO 8601 (UTC unless it names a zone).
            None: it goes with the clock of the machine.
    """

    def __init__(self, at: datetime | str | None = None) -> None:
        self._at, self._ahead = _utc(at), timedelta()

    def now(self) -> datetime:
        """The present, in UTC."""
        return (self._at or times.now()) + self._ahead

    def advance(self, span: timedelta | str) -> None:
        """Let time go on by a span, such as `90s` or `5 minutes`; a negative `timedelta` sets it back.

        Raises:
            ValueError: it is no such span.
        """
        self._ahead += durations.parse(span) if isinstance(span, str) else span

    def set(self, at: datetime | str) -> None:
        """Let it stand at a time."""
        self._at, self._ahead = _utc(at), timedelta()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hold a clock that goes, so that what is done meanwhile is done at one time."""
        before, self._at = self._at, self._at or times.now()
        try:
            yield
        finally:
            self._at = before


def _utc(at: datetime | str | None) -> datetime | None:
    """A time in UTC, which it is where it names no zone."""
    found = times.parse(at) if isinstance(at, str) else at
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
