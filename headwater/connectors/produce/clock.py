"""When each record of a run is produced, in epoch milliseconds, UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

from headwater.common import times

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_STEP = timedelta(milliseconds=100)  # 200,000 records span five and a half hours


def event_clock(*, rate: float | None, start: datetime | None) -> Iterator[int]:
    """The clock of a run: the wall clock when it is paced and no start is given, else a stepped one."""
    if rate and start is None:
        return wall_clock()
    return stepped(start or DEFAULT_START)


def stepped(start: datetime = DEFAULT_START, step: timedelta = DEFAULT_STEP) -> Iterator[int]:
    """Epoch milliseconds from `start` on, `step` apart; a start without a zone is in UTC."""
    aware = start if start.tzinfo else start.replace(tzinfo=UTC)
    millisecond = timedelta(milliseconds=1)
    return count((aware - times.EPOCH) // millisecond, step // millisecond)


def wall_clock() -> Iterator[int]:
    """The present, in epoch milliseconds, each time it is asked."""
    while True:
        yield time.time_ns() // 1_000_000
