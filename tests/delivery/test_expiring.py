"""Rows of bronze and of its quarantine go by their age, under a run that is killed; what they made stays."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from harness import BRONZE, QUARANTINE, SEED, Project
from oracles import assert_all_gold, assert_silver, positions
from pyspark.sql import SparkSession

from headwater.storage import log
from headwater.storage.lake import Lake

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

KILLS = 6
MAINTAINED = {
    "every": "1 second",
    "keep": "1 second",
    "tables": {BRONZE: {"retention": "10 seconds"}, QUARANTINE: {"retention": "10 seconds"}},
}


@pytest.fixture
def project(tmp_path: Path, broker: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "project", broker=broker, maintain=MAINTAINED)
    return project


def left(project: Project, table: str) -> set[tuple[int, int]]:
    """(partition, offset) of the rows that a table has."""
    return {(partition, offset) for partition, offset in project.rows(table, 'partition, "offset"')}


def assert_rest(project: Project) -> None:
    """Of bronze and the quarantine the newest rows are there, of every partition all from one on."""
    sent, oracle = positions(project.records), project.generator
    ends = {partition: offset + 1 for partition, offset in sorted(sent)}
    there = left(project, BRONZE)
    assert there < sent.keys()
    for partition, end in ends.items():
        offsets = sorted(offset for of, offset in there if of == partition)
        assert offsets == list(range(end - len(offsets), end))
    rejects = {at for at, record in sent.items() if not oracle.kept(record.fault)}
    quarantined = left(project, QUARANTINE)
    assert quarantined < rejects
    assert there & rejects <= quarantined  # a reject comes to the quarantine after it came to bronze


def test_rows_expire_under_kills_and_beside_a_savepoint(project: Project) -> None:
    seed = SEED
    print(f"seed {seed}")
    draw = random.Random(seed)
    gone = 0
    project.produce(2_000)
    for kill in range(KILLS):
        table = draw.choice((BRONZE, QUARANTINE))
        fail = f"expired:{table}:{draw.randint(1, 3)}=python" if kill % 2 else None
        with project.run(fail=fail) as live, project.producing(rate=300):
            if fail is None:
                before = gone
                live.until(lambda before=before: _gone(project) > before, "rows that go")
                time.sleep(draw.uniform(0, 1))  # anywhere in what comes with it
                live.kill()
            assert live.wait() == -9, live.said()
        gone = _gone(project)
        if kill == KILLS // 2:
            project.headwater("savepoint", "create", "one")
    with project.run() as live:
        live.until(lambda: _gone(project) > gone, "rows that go")
        live.until(lambda: project.has_read("silver.cpu_metrics", BRONZE), "what was sent")
    project.once()
    assert_rest(project)
    assert_silver(project)
    assert_all_gold(project)

    project.headwater("savepoint", "restore", "one")
    project.once()
    assert_rest(project)
    assert_silver(project)
    assert_all_gold(project)


def _gone(project: Project) -> int:
    """How many rows have left bronze."""
    place = Lake(project.conf.lake).places().get(BRONZE)
    if place is None:
        return 0
    files = log.snapshot(place.path, log.head(place.path))
    consumed = log.flows(place.path).get(BRONZE, {}).get("consumed", {})
    read = sum(end for ends in consumed.values() for end in ends.values())
    return int(read - sum(file.rows for file in files))
