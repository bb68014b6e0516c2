"""Rides on the ski lifts of three resorts, busier by the hour; and the right answers in plain Python.

Topic `lift-rides`: {resort_id, lift_id, skier_id, ride_time in epoch ms UTC}, keyed by lift_id. A gate
that gets no answer sends a ride again, byte for byte: nobody passes two gates in one millisecond, so that
is one ride.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from math import pi, sin
from typing import Any, NamedTuple

from headwater.connectors.produce import Record, Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events

TOPIC = "lift-rides"
LIFTS = [(f"resort-{resort}", f"lift-{resort}{lift}") for resort in range(1, 4) for lift in range(1, 6)]
SIZE_MS, SLIDE_MS = 600_000, 300_000
SKIERS = 5_000

topics = [Topic(TOPIC, partitions=4)]
shown = "gold.lift_rides_10m ORDER BY window_start DESC, rides DESC, lift_id"


def _ride(draw: Draw, now: int) -> dict[str, Any]:
    # Where the skiers are goes round all lifts once in three hours.
    place = 0.5 + 0.5 * sin(2 * pi * now / 10_800_000)
    resort, lift = LIFTS[int((place + draw() ** 2) * len(LIFTS)) % len(LIFTS)]
    skier = f"skier-{int(draw() * SKIERS):04d}"
    return {"resort_id": resort, "lift_id": lift, "skier_id": skier, "ride_time": now - int(draw() * 2_000)}


EVENTS = Events(
    topic=TOPIC,
    partitions=4,
    key="lift_id",
    time="ride_time",
    draw=_ride,
    malformed=MALFORMED,
    invalid={
        "no_lift": lambda event: {**event, "lift_id": None},
        "other_lift": lambda event: {**event, "lift_id": "gondola"},
    },
    late=(13_000, 3_600_000),
)
records = EVENTS.records


# The oracle: what the pipeline must make of these records.


class Ride(NamedTuple):
    resort_id: str
    lift_id: str
    skier_id: str
    ride_time: int  # epoch milliseconds, UTC


class Busy(NamedTuple):
    rides: int
    before: int  # in the window that began five minutes earlier
    trend: str


def rides(records: Iterable[Record]) -> list[Ride]:
    """Those that silver holds: each once."""
    found: dict[Ride, None] = {}
    for record in records:
        if record.fault is None or record.fault in ("late", "duplicate", "future"):
            assert record.value is not None
            found[Ride(**json.loads(record.value))] = None
    return list(found)


def lift_rides_10m(records: Iterable[Record]) -> dict[tuple[int, str, str], Busy]:
    """{(window start in epoch ms UTC, resort_id, lift_id) → how busy}, in windows with a ride."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for ride in rides(records):
        last = ride.ride_time // SLIDE_MS * SLIDE_MS
        for start in range(last - SIZE_MS + SLIDE_MS, last + 1, SLIDE_MS):
            counts[start, ride.resort_id, ride.lift_id] += 1
    found = {}
    for (start, resort, lift), n in counts.items():
        before = counts.get((start - SLIDE_MS, resort, lift), 0)
        trend = "increasing" if n > before else "decreasing" if n < before else "stable"
        found[start, resort, lift] = Busy(n, before, trend)
    return found
