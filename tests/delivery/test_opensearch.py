"""Tables kept in OpenSearch: as the lake has them, whatever is killed or down; the lake waits for nobody."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from harness import GOLD, SILVER, Event, Project, Running, assert_same, once_each
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parents[1]))
from opensearch import Server

SINKS = f'''"""Two tables for those who search."""

import headwater as hw

usage = hw.opensearch_sink("{GOLD}", connection="search")
readings = hw.opensearch_sink("{SILVER}", connection="search", index="readings")
'''
USAGE = f"{GOLD}->opensearch:search.{GOLD}"
READINGS = f"{SILVER}->opensearch:search.readings"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, broker: str, spark: SparkSession, server: Server) -> Project:
    project = Project(tmp_path / "project", broker=broker, opensearch={"search": server.options})
    (project.root / "gold" / "search.py").write_text(SINKS)
    return project


def sent(run: Running, more: int = 1) -> None:
    """Wait for so many further batches of both sinks."""
    for name in (USAGE, READINGS):
        run.batch(name, after=len(run.batches(name)) + more - 1)


def states(run: Running, state: str) -> list[Event]:
    return [event for event in run.events if event.get("state") == state]


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def assert_opensearch_equals_lake(project: Project, server: Server) -> None:
    columns = "epoch_ms(window_start), epoch_ms(window_end), hostname, cpu, avg_usage, max_usage"
    want = once_each("gold", project.rows(GOLD, columns), 4)
    names = ("hostname", "cpu", "avg_usage", "max_usage")
    rows = [
        (millis(d["window_start"]), millis(d["window_end"]), *(d[name] for name in names))
        for d in server.documents(GOLD).values()
    ]
    assert_same("gold in OpenSearch", want, once_each("opensearch", rows, 4))
    assert want
    place = '_source.partition, _source."offset", hostname, usage'
    want = once_each("silver", project.rows(SILVER, place), 2)
    rows = [
        (d["__source"]["partition"], d["__source"]["offset"], d["hostname"], d["usage"])
        for d in server.documents("readings").values()
    ]
    assert_same("silver in OpenSearch", want, once_each("opensearch", rows, 2))


@pytest.mark.torture
@pytest.mark.parametrize("kills", [1, 12])
def test_each_row_is_one_document_whatever_is_killed(project: Project, server: Server, kills: int) -> None:
    draw = random.Random(kills)
    with project.producing(rate=500):
        for kill in range(kills):
            with project.run() as run:
                sent(run)
                if kill == 0:
                    the_server_goes_and_comes_back(run, server)
                else:
                    sent(run, draw.randrange(1, 4))
                assert not states(run, "failed"), run.said()
                run.kill(signal.SIGKILL)
                run.wait()
    project.once()
    assert_opensearch_equals_lake(project, server)


def the_server_goes_and_comes_back(run: Running, server: Server) -> None:
    """While it is away the tables go on; then the sinks catch up."""
    server.stop()
    run.until(lambda: {USAGE, READINGS} <= {e["flow"] for e in states(run, "waiting")}, "the sinks wait")
    before = len(run.batches(USAGE))
    run.batch(GOLD, after=len(run.batches(GOLD)) + 2)
    assert len(run.batches(USAGE)) == before
    server.start()
    sent(run)
