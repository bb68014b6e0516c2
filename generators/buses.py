"""Buses on their rounds, which report where they are, or fall silent; and the right answers in plain Python.

Topic `bus-positions`: {bus_id, route_id, lat, lon in degrees, reported_at in epoch ms UTC}, keyed by bus_id.
A report that got no answer is sent again, byte for byte: a bus is in one place at a time, so that is one.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable
from math import cos, hypot, radians
from pathlib import Path
from typing import Any, NamedTuple

from headwater.connectors.produce import Record, Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events, reached

TOPIC = "bus-positions"
BUSES, SILENT_MS = 60, 300_000  # each bus is silent for five minutes out of every 25
METRES = 111_320.0  # of a degree of latitude

topics = [Topic(TOPIC, partitions=4)]
shown = "gold.bus_positions ORDER BY reported_at DESC, bus_id"


class Stop(NamedTuple):
    stop: str
    lat: float
    lon: float


def _stops() -> dict[str, list[Stop]]:
    """{route → its stops, in the order in which a bus comes to them}: the reference table `stops`."""
    found: dict[str, list[Stop]] = defaultdict(list)
    path = Path(__file__).parents[1] / "conf" / "reference" / "stops.csv"
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found[row["route_id"]].append(Stop(row["stop"], float(row["lat"]), float(row["lon"])))
    return found


STOPS = _stops()


def metres(a: Any, b: Any) -> float:
    """How far two places of one town lie apart: on a plane, which is right to a thousandth."""
    return hypot((a.lat - b.lat) * METRES, (a.lon - b.lon) * METRES * cos(radians(a.lat)))


def _report(draw: Draw, now: int) -> dict[str, Any]:
    bus = int(draw() * BUSES)
    bus += (bus + now // SILENT_MS) % 5 == 0  # it is silent, so the next one
    at = now - int(draw() * 2_000)
    route = sorted(STOPS)[bus % len(STOPS)]
    lat, lon = _place(STOPS[route], (8 + bus % 7) * at / 1_000)
    return {
        "bus_id": f"bus-{bus:02d}",
        "route_id": route,
        "lat": round(lat, 6),
        "lon": round(lon, 6),
        "reported_at": at,
    }


def _place(stops: list[Stop], driven: float) -> tuple[float, float]:
    """Where a bus is that has driven so many metres."""
    legs = [(a, b, metres(a, b)) for a, b in zip(stops, [*stops[1:], stops[0]], strict=True)]
    left = driven % sum(length for *_, length in legs)
    for a, b, length in legs:
        if left <= length:
            share = left / length
            return a.lat + share * (b.lat - a.lat), a.lon + share * (b.lon - a.lon)
        left -= length
    return stops[0].lat, stops[0].lon


EVENTS = Events(
    topic=TOPIC,
    partitions=4,
    key="bus_id",
    time="reported_at",
    draw=_report,
    malformed=MALFORMED,
    invalid={
        "no_bus": lambda event: {**event, "bus_id": None},
        "at_null_island": lambda event: {**event, "lat": 0.0, "lon": 0.0},
    },
    late=(60_000, 600_000),
)
records = EVENTS.records


# The oracle: what the pipeline must make of these records.

SENT = (None, "late", "duplicate", "future")  # what silver takes, each report once


class Report(NamedTuple):
    bus_id: str
    route_id: str
    lat: float
    lon: float
    reported_at: int  # epoch milliseconds, UTC


class Silence(NamedTuple):
    bus_id: str
    since: int  # epoch milliseconds, UTC


class Position(NamedTuple):
    route_id: str
    lat: float
    lon: float
    reported_at: int  # epoch milliseconds, UTC
    speed: float | None  # km/h, between its last two reports; None where it has but one
    next_stop: str
    arrival: float | None  # epoch milliseconds, UTC; None where it stands


def reports(records: Iterable[Record]) -> list[Report]:
    """Those that silver holds: each once."""
    found: dict[Report, None] = {}
    for record in records:
        if record.fault in SENT:
            found[Report(**json.loads(record.value or b""))] = None
    return list(found)


def bus_silences(records: Iterable[Record]) -> dict[Silence, Report]:
    """When buses fell silent for two minutes, up to the newest report; and the report before.

    A report does not count that lies more than 30 s behind what its partition had reached.
    """
    of_bus, newest = defaultdict[str, list[Report]](list), 0
    told = dict.fromkeys(
        (record.partition, Report(**json.loads(record.value or b"")))
        for record in records
        if record.fault in SENT
    )
    for (_, report), (at, most) in zip(told, reached((p, r.reported_at) for p, r in told), strict=True):
        newest = max(newest, at)
        if most <= at + 30_000:
            of_bus[report.bus_id].append(report)
    found = {}
    for bus, of_it in of_bus.items():
        in_order = sorted(of_it, key=lambda r: r.reported_at)
        nexts = [*(r.reported_at for r in in_order[1:]), newest + 1]
        for report, following in zip(in_order, nexts, strict=True):
            if following > report.reported_at + 120_000:
                found[Silence(bus, report.reported_at)] = report
    return found


def bus_positions(records: Iterable[Record]) -> dict[str, Position]:
    """{bus → its latest position}; of reports of one instant that with the greater fields."""
    of_bus: dict[str, list[Report]] = defaultdict(list)
    for report in reports(records):
        of_bus[report.bus_id].append(report)
    found = {}
    for bus, all_of_it in of_bus.items():
        last, *before = sorted(
            all_of_it, key=lambda r: (r.reported_at, r.route_id, r.lat, r.lon), reverse=True
        )
        speed = None
        if before and before[0].reported_at < last.reported_at:
            speed = 3_600 * metres(last, before[0]) / (last.reported_at - before[0].reported_at)
        stops = STOPS[last.route_id]
        legs = zip(stops, [*stops[1:], stops[0]], strict=True)
        _, stop = min(legs, key=lambda leg: metres(last, leg[0]) + metres(last, leg[1]) - metres(*leg))
        arrival = last.reported_at + 3_600 * metres(last, stop) / speed if speed else None
        found[bus] = Position(*last[1:], speed, stop.stop, arrival)
    return found
