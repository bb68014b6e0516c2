"""Partial results of windows, put together."""

from __future__ import annotations

import itertools
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


PAIR = pa.struct([("n", pa.int64()), ("s", pa.list_(pa.string()))])
PAIRS = [None, {"n": None, "s": ["z"]}, {"n": 1, "s": None}, {"n": 1, "s": [None]}, {"n": 1, "s": ["a"]}]


@pytest.mark.parametrize("turned", [False, True])
def test_of_structs_null_is_the_least_in_their_fields(turned: bool) -> None:
    bounds = Aggregate((Output("k", "key"), Output("least", "min"), Output("most", "max")), "")
    columns = pa.schema([("k", pa.string()), ("least", PAIR), ("most", PAIR)])
    for least, most in itertools.combinations(PAIRS, 2):
        given = (most, least) if turned else (least, most)
        one, other = (pa.Table.from_pylist([{"k": "a", "least": v, "most": v}], columns) for v in given)
        (found,) = combine(bounds, one, other, NEVER, NOWHERE)[0].to_pylist()
        assert (found["least"], found["most"]) == (most if least is None else least, most)
