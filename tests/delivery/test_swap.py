"""A rebuild beside a running process: readers see all old tables or all new, nothing is lost or doubled."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BRONZE, FINAL, GOLD, HOT, SEED, SILVER, Project, assert_lake_equals_oracle

from headwater import query
from headwater.lake import Lake

REBUILT = {SILVER, GOLD, FINAL, HOT}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project")
    try:
        yield project
    finally:
        project.broker.stop()


class Reader(threading.Thread):
    """Polls two tables that are swapped together, and keeps what it saw."""

    def __init__(self, project: Project) -> None:
        super().__init__(daemon=True)
        self._project = project
        self._stopped = threading.Event()
        self.seen: list[tuple[int, int]] = []  # generations of silver and gold, at once
        self.rows: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(0.1):
                places = Lake(self._project.conf.lake).places()
                self.seen.append((places[SILVER].generation, places[GOLD].generation))
                text = f"SELECT count(*) FROM {SILVER} JOIN (SELECT count(*) FROM {GOLD}) ON true"
                self.rows.append(query.run(text, project=self._project.root).rows[0][0])
        except Exception as e:
            self.error = e

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)


def generations(project: Project) -> dict[str, int]:
    return {name: place.generation for name, place in Lake(project.conf.lake).places().items()}


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.torture)])
def test_a_rebuild_under_load(project: Project, kills: int) -> None:
    draw = random.Random(SEED)
    project.produce(30_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        reader = Reader(project)
        reader.start()
        for _ in range(kills):
            step, flow = draw.choice(
                [("rebuilt", "rebuild"), ("swapped", "rebuild"), ("built", SILVER), ("committed", GOLD)]
            )
            tried = project.tried("rebuild", SILVER, fail=f"{step}:{flow}:1=python")
            assert tried.returncode == -9, (step, flow, tried.stderr)
            project.produce(2_000)
        done = project.headwater("rebuild", SILVER)
        project.produce(5_000)
        live.until(project.caught_up, "all records")
        reader.stop()
        assert not [event for event in live.events if event.get("state") == "failed"], live.said()
    assert reader.error is None
    assert all(silver == gold for silver, gold in reader.seen), "readers saw a mix"
    now = generations(project)
    assert now[BRONZE] == 1 and len({now[name] for name in REBUILT}) == 1 and now[SILVER] > 1, done
    assert len(set(reader.seen)) > 1
    project.once()
    assert_lake_equals_oracle(project)
