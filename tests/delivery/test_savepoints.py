"""Savepoints, restores and copies beside a running process, with real kills: nothing is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import BRONZE, GOLD, SILVER, Project
from oracles import assert_lake_equals_oracle

from headwater.operations import savepoints
from headwater.storage.lake import Lake

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]


def generations(project: Project) -> dict[str, int]:
    return {name: place.generation for name, place in Lake(project.conf.lake).places().items()}


def test_savepoint_and_restore_under_load(project: Project) -> None:
    project.produce(10_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        with project.producing(rate=500):
            live.batch(SILVER, after=len(live.batches(SILVER)))
            tried = project.tried("savepoint", "create", "one", fail="made:savepoint:1=python")
            assert tried.returncode == -9, tried.stderr
            assert json.loads(project.headwater("savepoint", "ls", "--json")) == []
            project.headwater("savepoint", "create", "one")
            live.batch(GOLD, after=len(live.batches(GOLD)))
            before = generations(project)
            tried = project.tried("savepoint", "restore", "one", fail="made:restore:1=python")
            assert tried.returncode == -9, tried.stderr
            assert generations(project) == before
            project.headwater("savepoint", "restore", "one")
            tried = project.tried("savepoint", "restore", "one", fail="swapped:restore:1=python")
            assert tried.returncode == -9, tried.stderr
        now = generations(project)
        assert now[BRONZE] == before[BRONZE] and all(
            now[name] > before[name] for name in now if name != BRONZE
        )
        live.until(project.caught_up, "all records")
        assert not [event for event in live.events if event.get("state") == "failed"], live.said()
    project.once()
    assert_lake_equals_oracle(project)
    (made,) = savepoints.all_of(Lake(project.conf.lake))
    assert (
        10_000 <= sum(sum(at.values()) for at in made.bronze[BRONZE].offsets.values()) < len(project.records)
    )


@pytest.mark.parametrize("full", [False, True])
def test_a_copy_of_a_lake_at_work_goes_on_by_itself(project: Project, tmp_path: Path, full: bool) -> None:
    copied = tmp_path / "copied"
    arguments = ["copy", str(copied), *(["--full"] if full else [])]
    project.produce(10_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        with project.producing(rate=500):
            live.batch(SILVER, after=len(live.batches(SILVER)))
            tried = project.tried(*arguments, fail="made:copy:1=python")
            assert tried.returncode == -9 and not copied.exists(), tried.stderr
            project.headwater(*arguments)
            live.batch(GOLD, after=len(live.batches(GOLD)))
        live.until(project.caught_up, "all records")
    project.configure(lake=str(copied))
    project.once()
    assert_lake_equals_oracle(project)
