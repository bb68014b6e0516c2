"""Windows end by the time of records, or by the clock where a partition, or all of Kafka, falls silent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import Project, Running

COUNTS = "gold.counts"
SHORT = f"""CREATE STREAMING TABLE {COUNTS}
TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.idle_timeout' = '4s')
AS SELECT window.start AS window_start, hostname, count(*) AS readings
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 1 SECOND
GROUP BY window(event_time, '5 seconds'), hostname
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project")
    for path in (project.root / "gold").iterdir():
        path.unlink()
    for path in (project.root / "quality").glob("gold.*"):
        path.unlink()
    (project.root / "gold" / "counts.sql").write_text(SHORT)
    try:
        yield project
    finally:
        project.broker.stop()


def send(project: Project, host: str, partition: int, *at: float) -> None:
    """Readings of a host at these times (seconds since the epoch)."""
    producer = Producer(project.client())
    for second in at:
        value = {"hostname": host, "cpu": "cpu1", "usage": 1.0, "occurred_at": int(second * 1000)}
        producer.produce("iot-data-input", json.dumps(value).encode(), host.encode(), partition)
    assert producer.flush(30) == 0


def shown(project: Project) -> set[tuple[str, int, int]]:
    return set(project.rows(COUNTS, "hostname, epoch(window_start)::BIGINT, readings"))


def wait(run: Running, project: Project, host: str, start: float) -> None:
    window = int(start) // 5 * 5
    run.until(lambda: (host, window, 1) in shown(project), f"{host}'s window of {window}")


def test_silence(project: Project) -> None:
    old = time.time() - 3600  # what is read is an hour old, so no clock closes it before its time has come
    with project.run() as run:
        send(project, "doc", 0, old)
        send(project, "happy", 1, old)
        run.until(lambda: len(project.rows(f"{COUNTS}__state", "1")) == 2, "two open windows")
        began = time.monotonic()
        send(project, "doc", 0, old + 20)  # partition 1 has nothing on its way, and falls silent
        wait(run, project, "doc", old)
        assert time.monotonic() - began > 2
        wait(run, project, "happy", old)

        wait(run, project, "doc", old + 20)  # all is silent, and this lies in the past
        assert not project.rows(f"{COUNTS}__state", "1")

        now = time.time() + 30
        send(project, "doc", 0, now)
        run.until(lambda: len(project.rows(f"{COUNTS}__state", "1")) == 1, "an open window")
        send(
            project, "happy", 1, old + 20
        )  # its own partition has not come so far, but that window is closed
        late = lambda: project.rows(f"{COUNTS}_late", "hostname, occurred_at")  # noqa: E731
        run.until(lambda: late() == [("happy", int((old + 20) * 1000))], "a late row")
        wait(run, project, "doc", now)  # by the clock, when its time has come
        assert time.time() > now // 5 * 5 + 5 + 1
    project.once()
