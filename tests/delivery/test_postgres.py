"""Tables kept in PostgreSQL: every change once, whatever is killed or down; and the lake waits for nobody."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import GOLD, SILVER, Event, Project, assert_same, once_each
from pyspark.sql import SparkSession
from running import Heard

sys.path.append(str(Path(__file__).parents[1]))
from postgres import PASSWORD, Server

SINKS = f'''"""Two tables for those who read PostgreSQL."""

import headwater as hw

usage = hw.postgres_sink("{GOLD}", connection="warehouse")
readings = hw.postgres_sink("{SILVER}", connection="warehouse", into="raw.readings")
'''
USAGE = f"{GOLD}->postgres:warehouse.{GOLD}"
READINGS = f"{SILVER}->postgres:warehouse.raw.readings"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def project(
    tmp_path: Path, broker: str, spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", PASSWORD)
    connection = {**server.options, "password": "env:WAREHOUSE_PASSWORD"}
    project = Project(tmp_path / "project", broker=broker, postgres={"warehouse": connection})
    (project.root / "gold" / "warehouse.py").write_text(SINKS)
    return project


def sent(run: Heard, more: int = 1) -> None:
    """Wait for so many further batches of both sinks."""
    for name in (USAGE, READINGS):
        run.batch(name, after=len(run.batches(name)) + more - 1)


def assert_postgres_equals_lake(project: Project, server: Server) -> None:
    columns = "epoch_ms(window_start), epoch_ms(window_end), hostname, cpu, avg_usage, max_usage"
    want = once_each("gold", project.rows(GOLD, columns), 4)
    ours = columns.replace("epoch_ms(", "(1000 * extract(epoch FROM ").replace(")", "))::bigint", 2)
    got = once_each("postgres", server.rows(f"SELECT {ours} FROM {GOLD}"), 4)
    assert_same("gold in PostgreSQL", want, got)
    assert want
    place = '_source.partition, _source."offset", hostname, usage'
    want = once_each("silver", project.rows(SILVER, place), 2)
    theirs = "(_source->>'partition')::int, (_source->>'offset')::bigint, hostname, usage"
    got = once_each("postgres", server.rows(f"SELECT {theirs} FROM raw.readings"), 2)
    assert_same("silver in PostgreSQL", want, got)


def test_a_server_that_goes_and_comes_back_gets_each_change_once(project: Project, server: Server) -> None:
    with project.producing(rate=500), project.live() as run:
        sent(run)
        the_server_goes_and_comes_back(run, server)
        assert run.stop() == 0, run.said()
    project.once()
    assert_postgres_equals_lake(project, server)
    assert project.once() == []


@pytest.mark.torture
@pytest.mark.parametrize("kills", [2, 12])
def test_each_change_arrives_once_whatever_is_killed(project: Project, server: Server, kills: int) -> None:
    draw = random.Random(kills)
    with project.producing(rate=500):
        for kill in range(kills):
            with project.run() as run:
                sent(run)
                if kill == 0:
                    the_server_goes_and_comes_back(run, server)
                else:
                    sent(run, draw.randrange(1, 4))
                run.kill(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                run.wait()
    project.once()
    assert_postgres_equals_lake(project, server)
    assert project.once() == []


def the_server_goes_and_comes_back(run: Heard, server: Server) -> None:
    """While it is away the tables go on; then the sinks catch up."""
    server.stop()
    away = lambda: [e for e in run.events if e.get("state") == "waiting" and e["flow"] == USAGE]  # noqa: E731
    run.until(away, "the sink waits")
    before = len(run.batches(USAGE))
    run.batch(GOLD, after=len(run.batches(GOLD)) + 2)
    assert len(run.batches(USAGE)) == before and not failed(run)
    server.start()
    sent(run)
    assert not failed(run)


def failed(run: Heard) -> list[Event]:
    return [event for event in run.events if event.get("state") == "failed"]


def test_a_sink_that_is_refused_stops_alone(project: Project, server: Server) -> None:
    server.rows(f"CREATE SCHEMA gold; CREATE TABLE {GOLD} (hostname int)")
    project.produce(500)
    run = project.drain()
    assert run.code() == 1, run.said()
    refused: list[Any] = [event["flow"] for event in failed(run)]
    assert refused == [USAGE] and "its column window_start is missing" in run.stderr, run.said()
    told = {one["table"]: one["failed"] for one in json.loads(project.headwater("status", "--json"))}
    assert "its column window_start is missing" in told.pop(USAGE) and not any(told.values())
    assert project.caught_up()
    server.rows(f"DROP TABLE {GOLD}")
    project.once()
    assert_postgres_equals_lake(project, server)
