"""The oracle of the rides generator agrees with a count by hand; its records are those of their seed."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.connectors.produce import Faults, Record, load_generator, stepped

rides: Any = load_generator(Path(__file__).parents[1], "rides")
MINUTE = 60_000


def made(count: int, seed: int) -> list[Record]:
    faults = Faults(late=0.1, duplicate=0.1, malformed=0.1, invalid=0.1)
    return list(islice(rides.records(seed=seed, faults=faults, clock=stepped()), count))


def test_the_same_seed_gives_the_same_records() -> None:
    assert made(2_000, 7) == made(3_000, 7)[:2_000] != made(2_000, 8)
    assert {record.fault for record in made(2_000, 7)} >= {"late", "duplicate", "invalid/other_lift"}


def test_the_oracle_agrees_with_a_count_by_hand() -> None:
    def ride(minute: float, fault: str | None = None) -> Record:
        fields = {"resort_id": "r", "lift_id": "l", "skier_id": "s", "ride_time": int(minute * MINUTE)}
        return Record("lift-rides", b"l", json.dumps(fields).encode(), 0, None, fault)

    records = [ride(12), ride(12, "duplicate"), ride(16, "late"), ride(17), ride(31), ride(31, "invalid/x")]
    at = lambda minute: (minute * MINUTE, "r", "l")  # noqa: E731
    assert rides.lift_rides_10m(records) == {
        at(5): (1, 0, "increasing"),
        at(10): (3, 1, "increasing"),
        at(15): (2, 3, "decreasing"),
        at(25): (1, 0, "increasing"),
        at(30): (1, 1, "stable"),
    }
