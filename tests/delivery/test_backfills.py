"""History enters a table that a process feeds from Kafka, which is killed: each record is there once."""

from __future__ import annotations

import gzip
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import BRONZE, SILVER, Project
from pyspark.sql import SparkSession

OLD, EACH, LIVE = 6, 1_500, 4_000  # files, records of each, records in Kafka
STEPS = ("staged", "committing", "committed")


@pytest.fixture
def project(tmp_path: Path, broker: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "project", broker=broker, max_rows_per_batch=1_000)
    return project


@pytest.mark.torture
@pytest.mark.parametrize("step", STEPS)
def test_who_asked_does_what_the_killed_process_left(project: Project, step: str) -> None:
    for file in range(OLD):
        numbers = range(file * EACH, (file + 1) * EACH)
        at = 1_600_000_000_000
        records = [
            {"hostname": f"old-{n}", "cpu": "cpu1", "usage": 1.0, "occurred_at": at + n} for n in numbers
        ]
        (project.root / f"{file}.json.gz").write_bytes(
            gzip.compress("\n".join(map(json.dumps, records)).encode())
        )
    command = ("backfill", BRONZE, "--from-files", "*.json.gz", "--json")
    project.produce(LIVE)
    with project.run(SILVER, fail=f"{step}:{BRONZE}.backfill:3=python") as live:
        live.batch(BRONZE)
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(project.tried, *command)
            assert live.wait() == -9, live.said()
            done: subprocess.CompletedProcess[str] = asked.result()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] < OLD * EACH  # the killed one had taken some
    again = json.loads(project.headwater(*command))
    assert (again["records"], again["known"]) == (0, OLD)
    project.once(SILVER)
    found = project.rows(BRONZE, 'cluster, partition, "offset", value')
    history = sorted((offset, value) for cluster, _, offset, value in found if cluster == "files")
    assert [offset for offset, _ in history] == list(range(OLD * EACH))
    assert [json.loads(value)["hostname"] for _, value in history] == [f"old-{n}" for n in range(OLD * EACH)]
    kafka = {(partition, offset) for cluster, partition, offset, _ in found if cluster == "main"}
    assert len(kafka) == LIVE == len(found) - OLD * EACH
    hosts = project.rows(SILVER, "hostname, _source.cluster")
    assert sorted(host for host, cluster in hosts if cluster == "files") == sorted(
        f"old-{n}" for n in range(OLD * EACH)
    )
