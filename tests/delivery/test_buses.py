"""The system `buses`: where each is, and which are silent, is plain Python's answer, whatever is killed."""

from __future__ import annotations

import json
import math
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import SEED, Project, assert_same, once_each

from headwater.produce import Faults, Record

FAULTS = Faults(late=0.02, duplicate=0.02, malformed=0.01, invalid=0.01)
SILVER, REPORTS, POSITIONS = "silver.bus_positions", "gold.bus_reports", "gold.bus_positions"
SILENT, SILENCES = "gold.silent_buses", "gold.bus_silences"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project", "buses", faults=FAULTS)
    view = project.root / "gold" / "bus_positions.sql"
    view.write_text(view.read_text().replace("'30s'", "'1s'"))
    try:
        yield project
    finally:
        project.broker.stop()


@pytest.mark.parametrize(
    ("kills", "each"), [(1, 30_000), pytest.param(10, 30_000, marks=pytest.mark.torture)]
)
def test_positions_equal_the_oracle_after_kills(project: Project, kills: int, each: int) -> None:
    draw = random.Random(SEED)
    for _ in range(kills):
        project.produce(each)
        with project.run() as run:
            run.batch(draw.choice([SILVER, REPORTS, POSITIONS, SILENT, SILENCES]))
            run.kill(signal.SIGKILL)
            run.wait()
    project.once("--close")
    assert_buses(project)
    assert_silences(project)
    last = {bus: p.reported_at for bus, p in project.generator.bus_positions(project.records).items()}
    silent = dict(project.rows(SILENT, "bus_id, epoch_ms(reported_at)"))
    assert silent == last  # their reports are of last winter

    bus, other = sorted(last)[:2]
    with project.run() as run:
        report(project, bus, time.time())
        report(project, other, time.time() - 117)
        gone = lambda: {bus, other} - {row[0] for row in project.rows(SILENT, "bus_id")}  # noqa: E731
        run.until(lambda: bus in gone(), f"{bus} is not silent any more")
        found = json.loads(project.headwater("status", "--json"))
        assert {one["writer"] for one in found if one["table"] in (SILVER, REPORTS)} == {run.pid}
        run.until(lambda: bus in gone() and other not in gone(), f"{other} is silent again")
    project.once()
    assert_buses(project)
    standings = {one["table"]: one for one in json.loads(project.headwater("status", "--json"))}
    assert all(one["writer"] is None and one["committed"] for one in standings.values())
    behind = {name: one["behind"] for name, one in standings.items()}
    assert behind == {**dict.fromkeys(behind, 0), POSITIONS: None, SILENT: None}
    assert standings[SILENCES]["watermark"] and standings[REPORTS]["keys"] == len(last)


def report(project: Project, bus: str, at: float) -> None:
    """One more report of a bus."""
    route, stops = next(iter(project.generator.STOPS.items()))
    fields = {"bus_id": bus, "route_id": route, "lat": stops[0].lat, "lon": stops[0].lon}
    value = json.dumps({**fields, "reported_at": int(at * 1000)}).encode()
    record = Record("bus-positions", bus.encode(), value, 0, None, None)
    producer = Producer(project.client())
    producer.produce(record.topic, value, record.key, record.partition)
    assert producer.flush(30) == 0
    project.records.append(record)


def assert_buses(project: Project) -> None:
    """Every table holds what the records that were sent make of it."""
    reports = project.generator.reports(project.records)
    rows = lambda: project.rows(SILVER, "bus_id, route_id, lat, lon, reported_at")  # noqa: E731
    assert sorted(rows()) == sorted(map(tuple, reports))
    want = project.generator.bus_positions(project.records)
    columns = "bus_id, route_id, lat, lon, epoch_ms(reported_at), speed, next_stop, epoch_ms(arrival)"

    got = once_each(POSITIONS, project.rows(POSITIONS, columns), 1)
    exact = {(bus,): (p.route_id, p.lat, p.lon, p.reported_at, p.next_stop) for bus, p in want.items()}
    assert_same("positions", exact, {bus: (*row[:4], row[5]) for bus, row in got.items()})
    for (bus,), (*_, speed, _, arrival) in got.items():
        assert near(speed, want[bus].speed, 1e-6) and near(arrival, want[bus].arrival, 2.0), bus
    assert any(p.speed for p in want.values())


def assert_silences(project: Project) -> None:
    """Each silence is there once, and where the bus was then."""
    want = project.generator.bus_silences(project.records)
    columns = "bus_id, epoch_ms(silent_since), route_id, lat, lon"
    got = once_each(SILENCES, project.rows(SILENCES, columns), 2)
    assert_same("silences", {tuple(at): (r.route_id, r.lat, r.lon) for at, r in want.items()}, got)
    assert len(got) > 60, "every bus is silent now and then"


def near(one: float | None, other: float | None, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=tolerance)
