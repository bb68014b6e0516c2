"""The oracle of the web generator agrees with a count by hand; its records are those of their seed."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.connectors.produce import Faults, Record, load_generator, stepped

web: Any = load_generator(Path(__file__).parents[1], "web")
SECOND = 1_000


def made(count: int, seed: int) -> list[Record]:
    faults = Faults(late=0.1, duplicate=0.1, malformed=0.1, invalid=0.1)
    return list(islice(web.records(seed=seed, faults=faults, clock=stepped()), count))


def view(seconds: int, partition: int, user: str = "ann", fault: str | None = None) -> Record:
    fields = {"user_id": user, "page": "/", "referrer": None, "viewed_at": seconds * SECOND}
    return Record("page-views", user.encode(), json.dumps(fields).encode(), partition, None, fault)


def test_the_same_seed_gives_the_same_records() -> None:
    assert made(2_000, 7) == made(3_000, 7)[:2_000] != made(2_000, 8)
    assert {record.fault for record in made(2_000, 7)} >= {"late", "duplicate", "invalid/no_path"}


def test_users_come_and_go() -> None:
    records = list(islice(web.records(seed=3, faults=Faults(), clock=stepped()), 30_000))
    lengths = [end - at[1] for at, (end, _) in web.web_sessions(records).over.items()]
    assert len(lengths) > 1_000 and 300_000 < sum(lengths) / len(lengths) < 720_000


def test_the_oracle_agrees_with_a_count_by_hand() -> None:
    records = [view(0, 0), view(300, 0), view(285, 0), view(284, 0, fault="late"), view(601, 0)]
    records += [
        view(700, 1, "bob"),
        view(684, 1, "eve"),
        view(1_000, 0, "eve"),
        view(9, 0, fault="invalid/x"),
    ]
    found = web.web_sessions(records)
    assert found.over == {("ann", 0): (600_000, 3)}  # 700 lies more than 15 s behind it
    assert found.open == {
        ("ann", 601_000): (901_000, 1),
        ("bob", 700_000): (1_000_000, 1),
        ("eve", 1_000_000): (1_300_000, 1),
    }
    assert found.late == 2  # 284 behind 300, and 684 behind 700


def test_the_views_of_a_window_may_be_75_seconds_late() -> None:
    counts, late = web.page_views_1m(
        [view(10, 0), view(134, 0), view(20, 0), view(135, 0), view(25, 0), view(31, 0)]
    )
    assert counts == {(-30_000, "/"): 1, (0, "/"): 2, (30_000, "/"): 1, (90_000, "/"): 2, (120_000, "/"): 2}
    assert late == 4  # 20 and 31 for the first of their two windows, 25 for both
