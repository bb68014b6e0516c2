"""Partial results of windows, put together."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headwater.errors import NOWHERE
from headwater.planner.aggregate import BOUNDS, Aggregate, Output
from headwater.planner.event_time import NEVER
from headwater.planner.partials import combine

TIME = pa.timestamp("us", "UTC")
VISITS = Aggregate(
    (
        Output("user", "key"),
        Output("since", "key", "start"),
        Output("upto", "key", "end"),
        Output("views", "count"),
    ),
    "session",
)
COLUMNS = pa.schema(
    [("user", pa.string()), ("since", TIME), ("upto", TIME), ("views", pa.int64())]
    + [(name, TIME) for name in BOUNDS]
)
Visit = tuple[str, int]  # whose, and the minute of its one view


def held(visits: list[Visit]) -> pa.Table:
    """Visits of one view each, which end half a minute after it."""
    found = []
    for user, minute in visits:
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        end = start + timedelta(seconds=30)
        found.append(dict(zip(COLUMNS.names, (user, start, end, 1, start, end), strict=True)))
    return pa.Table.from_pylist(found, COLUMNS)


@pytest.mark.parametrize(("users", "each"), [(1, 40), (20, 20), (200, 3)])
def test_a_view_that_comes_again_is_of_the_visit_that_it_was_of(users: int, each: int) -> None:
    visits = [(f"user-{user}", minute) for user in range(users) for minute in range(each)]
    for seed in range(3):
        draw = random.Random(seed)
        draw.shuffle(visits)
        again = set(draw.sample(sorted(visits), len(visits) * 2 // 3))
        changes, _ = combine(
            VISITS, held(visits), held(draw.sample(sorted(again), len(again))), NEVER, NOWHERE
        )
        kept = [row for row in changes.to_pylist() if not row["_gone"]]
        found = sorted((row["user"], row["since"].minute, row["upto"].second, row["views"]) for row in kept)
        told = {user for user, _ in again}
        want = [(user, at, 30, 1 + ((user, at) in again)) for user, at in visits if user in told]
        assert found == sorted(want)
