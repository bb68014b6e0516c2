"""A rebuild beside a running process: readers see all old tables or all new, nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import threading
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import BRONZE, FINAL, GOLD, HOT, SEED, SILVER, Project
from oracles import assert_lake_equals_oracle
from pyspark.sql import SparkSession

from headwater import query
from headwater.query import Engine
from headwater.storage import log
from headwater.storage.lake import Lake

REBUILT = {SILVER, GOLD, FINAL, HOT}


@pytest.fixture
def project(tmp_path: Path, broker: str, spark: SparkSession) -> Project:
    maintain = {"every": "4s", "keep": "8s", "checkpoint": 3}
    return Project(tmp_path / "project", broker=broker, maintain=maintain)


class Reader(threading.Thread):
    """Polls tables that are swapped together by one engine, and keeps what it saw.

    Each poll is one query of all: the rows of each table, and how far its event time has come.
    """

    def __init__(self, project: Project, engine: Engine, every: float) -> None:
        super().__init__(daemon=True)
        self._project, self._engine, self._every = project, engine, every
        self._stopped = threading.Event()
        self.seen: list[tuple[int, int]] = []  # generations of silver and gold, at once
        self.marks: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        times = {SILVER: "event_time", GOLD: "window_start", FINAL: "window_start"}
        parts = [
            f"(SELECT count(*) FROM {name}), (SELECT max({at}) FROM {name})" for name, at in times.items()
        ]
        text = f"SELECT {', '.join(parts)}, (SELECT max(avg_usage) FROM {HOT})"
        try:
            while not self._stopped.wait(self._every):
                places = Lake(self._project.conf.lake).places()
                self.seen.append((places[SILVER].generation, places[GOLD].generation))
                found = query.run(text, project=self._project.root, engine=self._engine)
                self.marks.append(found.rows[0][:6])
        except Exception as e:
            self.error = e

    def __enter__(self) -> Reader:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join(60)

    def check(self) -> None:
        """No error, no mix, no gap; and no table ever went back."""
        if self.error is not None:
            raise self.error
        assert all(silver == gold for silver, gold in self.seen), "readers saw a mix"
        assert len(set(self.seen)) > 1
        for earlier, later in pairwise(self.marks):
            assert all(now >= before for before, now in zip(earlier, later, strict=True)), (earlier, later)


def generations(project: Project) -> dict[str, int]:
    return {name: place.generation for name, place in Lake(project.conf.lake).places().items()}


@pytest.mark.parametrize("kills", [0, pytest.param(10, marks=pytest.mark.torture)])
def test_a_rebuild_under_load(project: Project, kills: int) -> None:
    draw = random.Random(SEED)
    if kills:  # what a reader's first query by Spark takes on a machine that is full
        project.configure(maintain={"every": "10s", "keep": "45s", "checkpoint": 4})
    project.produce(30_000 if kills else 5_000)
    calm = "1s"  # leaves time to the others
    with project.run("--trigger", calm) if kills else project.live(trigger=calm) as live:
        live.until(project.caught_up, "the first records")
        polls: dict[Engine, float] = {"duckdb": 0.1, "spark": 0.5} if kills else {"duckdb": 0.5}
        with ExitStack() as beside:
            readers = [beside.enter_context(Reader(project, *each)) for each in polls.items()]
            beside.enter_context(project.producing(100 if kills else 50))
            for _ in range(kills):
                step, flow = draw.choice(
                    [("rebuilt", "rebuild"), ("swapped", "rebuild"), ("built", SILVER), ("committed", GOLD)]
                )
                tried = project.tried("rebuild", SILVER, fail=f"{step}:{flow}:1=python")
                assert tried.returncode == -9, (step, flow, tried.stderr)
            done = json.loads(project.headwater("rebuild", SILVER, "--json"))
            assert done["swapped"] and done["tables"].keys() == REBUILT
            print(f"live flows rested for {done['held']:.1f} s")
            live.until(
                lambda: all(len(set(r.seen)) > 1 or r.error for r in readers), "a look at the new tables"
            )
            for reader in readers:  # some more, when the flows have gone on in the new tables
                looks = len(reader.marks)
                live.until(lambda r=reader, n=looks: len(r.marks) > n + 2 or r.error, "more looks")
            bronze = Lake(project.conf.lake).place(BRONZE).path
            live.until(lambda: log.first(bronze) > 0, "bronze is maintained while records come")
        maintained = {one["table"]: one for one in json.loads(project.headwater("maintain", "--json"))}
        assert maintained.keys() >= {BRONZE, *REBUILT}
        assert maintained[BRONZE]["first"] > 0, "its log has lost its beginning"
        live.until(project.caught_up, "all records")
        assert not [event for event in live.events if event.get("state") == "failed"], live.said()
    for reader in readers:
        reader.check()
    now = generations(project)
    assert now[BRONZE] == 1 and len({now[name] for name in REBUILT}) == 1 and now[SILVER] > 1, done
    project.once()
    assert_lake_equals_oracle(project)


@pytest.mark.torture
def test_verified_beside_a_run_under_load(project: Project) -> None:
    project.produce(20_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        with project.producing(300):
            before = len(live.batches(SILVER))
            tried = project.tried("rebuild", SILVER, "--verify")
            assert tried.returncode == 0, tried.stdout + tried.stderr
        assert len(live.batches(SILVER)) > before, live.said()
        live.until(project.caught_up, "all records")
    assert generations(project)[SILVER] == 2
    project.once()
    assert_lake_equals_oracle(project)


@pytest.mark.torture
def test_a_rebuild_that_is_killed_while_it_holds_holds_nothing(project: Project) -> None:
    project.produce(5_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        for _ in range(3):
            tried = project.tried("rebuild", SILVER, fail="holding:rebuild:1=python")
            assert tried.returncode == -9, tried.stderr
            done = len(live.batches(SILVER))
            project.produce(1_000)
            live.batch(SILVER, after=done)
            live.until(project.caught_up, "all records")
        project.headwater("rebuild", SILVER)
        project.produce(1_000)
        live.until(project.caught_up, "all records, in the new tables")
        assert not [event for event in live.events if event.get("state") == "failed"], live.said()
    project.once()
    assert_lake_equals_oracle(project)
