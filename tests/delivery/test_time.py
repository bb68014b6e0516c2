"""Windows end by the time of records, or by the clock where a partition, or all of Kafka, falls silent."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer
from harness import Project, Within

COUNTS = "gold.counts"
SHORT = f"""CREATE STREAMING TABLE {COUNTS}
TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.idle_timeout' = '4s')
AS SELECT window.start AS window_start, hostname, count(*) AS readings
FROM STREAM silver.cpu_metrics WATERMARK event_time DELAY OF INTERVAL 1 SECOND
GROUP BY window(event_time, '5 seconds'), hostname
"""


@pytest.fixture
def project(project: Project) -> Project:
    for path in (project.root / "gold").iterdir():
        path.unlink()
    for path in (project.root / "quality").glob("gold.*"):
        path.unlink()
    (project.root / "gold" / "counts.sql").write_text(SHORT)
    return project


def send(project: Project, host: str, partition: int, *at: float) -> None:
    """Readings of a host at these times (seconds since the epoch)."""
    producer, topic = Producer(project.client()), project.topic("iot-data-input")
    for second in at:
        value = {"hostname": host, "cpu": "cpu1", "usage": 1.0, "occurred_at": int(second * 1000)}
        producer.produce(topic, json.dumps(value).encode(), host.encode(), partition)
    assert producer.flush(30) == 0


def shown(project: Project) -> set[tuple[str, int, int]]:
    return set(project.rows(COUNTS, "hostname, epoch(window_start)::BIGINT, readings"))


def wait(run: Within, project: Project, host: str, start: float) -> None:
    window = int(start) // 5 * 5
    run.until(lambda: (host, window, 1) in shown(project), f"{host}'s window of {window}")


def test_silence(project: Project) -> None:
    with project.live() as run:
        old = time.time() - 3600
        send(project, "doc", 0, old)
        send(project, "happy", 1, old)
        wait(run, project, "doc", old)  # all is silent, and these windows lie in the past
        wait(run, project, "happy", old)

        soon = time.time() + 11  # so the clock closes nothing yet; partition 1 is silent, and not waited for
        send(project, "doc", 0, soon, soon + 6)
        wait(run, project, "doc", soon)
        assert time.time() < ends(soon)
        assert [row[0] for row in project.rows(f"{COUNTS}__state", "hostname")] == ["doc"]

        send(project, "happy", 1, soon)  # its own partition has not come so far, but that window is closed
        late = lambda: project.rows(f"{COUNTS}_late", "hostname, occurred_at")  # noqa: E731
        run.until(lambda: late() == [("happy", int(soon * 1000))], "a late row")
        wait(run, project, "doc", soon + 6)  # by the clock, when its time has come
        assert time.time() > ends(soon + 6)
    project.once()


def ends(at: float) -> float:
    """When the window of an instant is over."""
    return at // 5 * 5 + 5 + 1
