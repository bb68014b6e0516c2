"""A broker that goes away, a process that is asked to end, a definition that fails: what goes on."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from banking import EVENTS, assert_ledger, assert_ledger_ended, assert_sent, merchants, warehouse
from harness import BRONZE, GOLD, HOT, QUARANTINE, SEED, SILVER, Project, Running
from oracles import assert_lake_equals_oracle
from postgres import Server
from pyspark.sql import SparkSession
from running import Event

from headwater.storage import log
from headwater.storage.lake import Lake

STOP_LIMIT = 15.0  # seconds that a run has to end after SIGTERM

# A second table of the same topic, whose function fails on the first row that it gets.
CHECKED = '''"""The same records, through a function that fails."""

from pyspark.sql import functions as F

import headwater as hw


@hw.table(source="bronze.iot_metrics", decode=hw.json("hostname STRING, usage DOUBLE"))
def checked(metrics):
    """One row per reading of a host that is allowed."""
    refusal = F.raise_error(F.concat(F.lit("not allowed: "), "hostname"))
    return metrics.withColumn("allowed", refusal.cast("boolean"))
'''
BELOW = """CREATE STREAMING TABLE gold.checked_hosts
AS SELECT hostname, count(usage) AS readings FROM STREAM silver.checked GROUP BY hostname
"""


@pytest.fixture
def owner(tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    """The reference project with a broker of its own."""
    project = Project(tmp_path / "project")
    try:
        yield project
    finally:
        project.broker.stop()


def end(run: Running, code: int) -> None:
    """SIGTERM; the run must end in time, with this exit code, and leave no batch half done.

    One that had to wait for its broker, and whose flow has had none since, is pinned: nothing of it is done.
    """
    began = time.monotonic()
    run.kill(signal.SIGTERM)
    assert run.wait(within=60) == code, run.said()
    seconds = time.monotonic() - began
    print(f"ended {seconds:.1f} s after SIGTERM")
    assert seconds < STOP_LIMIT, run.said()
    assert run.project.intents()
    newest = {event["flow"]: event for event in run.events if is_step(event)}
    waited = {flow for flow, event in newest.items() if event["event"] == "state"}
    half = [name for name, intent in run.project.intents().items() if not intent["sealed"]]
    half = [name for name in half if name not in waited]
    assert not half, f"half done: {half}\n{run.said()}"


def is_step(event: Event) -> bool:
    """Whether it tells of a batch, or that a flow waits."""
    return event["event"] == "batch" or event.get("state") == "waiting"


def outage(project: Project, seconds: float) -> None:
    definition = project.root / "gold" / "cpu_usage_5m.sql"
    given = "TBLPROPERTIES ("
    assert given in definition.read_text()
    definition.write_text(definition.read_text().replace(given, f"{given}'headwater.trigger' = '2s', "))
    client = project.client()
    with project.run() as run:
        with project.producing(rate=300, client=client):
            run.batch(GOLD)
        # A producer that sends while its broker is stopped may lose it for good: see `kafka.lost`.
        began = time.monotonic()
        project.broker.stop()
        with project.producing(rate=300, client=client):
            threading.Event().wait(seconds)  # the length of the outage
            before = len(run.batches(BRONZE))
            project.broker.start()
            back = time.monotonic()
            first = run.batch(BRONZE, after=before)
            print(
                f"outage of {back - began:.1f} s; bronze goes on {first['heard'] - back:.1f} s after its end"
            )
            run.batch(GOLD, after=len(run.batches(GOLD)))
            end(run, 0)  # while records still come
    began_at = [batch["at"] - batch["seconds"] for batch in run.batches(GOLD)]
    gaps = [after - before for before, after in pairwise(began_at)]
    assert gaps and min(gaps) > 1.9, gaps  # `at` and `seconds` come from two clocks
    project.once()
    assert_lake_equals_oracle(project)
    assert not any(event.get("state") == "failed" for event in run.events), run.said()


def test_a_run_outlives_its_broker_and_ends_in_time(owner: Project) -> None:
    outage(owner, 8)


@pytest.mark.torture
def test_a_run_outlives_a_longer_outage(owner: Project) -> None:
    outage(owner, 20)


@pytest.mark.torture
def test_what_the_ledger_takes_and_sends_is_there_once_after_its_broker_was_killed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, flows = random.Random(SEED), (EVENTS, "gold.debits", "gold.segment_spend")
    with Server() as server:
        project = Project(tmp_path / "project", "ledger", postgres=warehouse(server, monkeypatch))
        server.rows(merchants(project.generator))
        try:
            with project.producing(rate=200), project.run() as run:
                run.batch(flows[-1])
                for _ in range(4):
                    last = draw.choice(flows)
                    run.batch(last, after=len(run.batches(last)))
                    pid = project.broker.status().pid
                    assert pid
                    os.kill(pid, signal.SIGKILL)
                    threading.Event().wait(draw.choice((0, 5)))  # the length of the outage
                    before = len(run.batches(EVENTS))
                    project.broker.start()
                    run.batch(EVENTS, after=before)
                end(run, 0)
            assert not any(event.get("state") == "failed" for event in run.events), run.said()
            project.once(close=True)
            assert_ledger(project)
            assert_ledger_ended(project)
            assert_sent(project, server)
        finally:
            project.broker.stop()


def test_what_fails_stops_alone(project: Project) -> None:
    """First a function that fails on its rows, then a reference table that is broken under the run."""
    (project.root / "silver" / "checked.py").write_text(CHECKED)
    (project.root / "gold" / "checked_hosts.sql").write_text(BELOW)
    hosts = project.root / "conf" / "reference" / "hosts.csv"
    good = hosts.read_text()
    project.produce(3_000)
    with project.live() as run:
        run.until(lambda: "silver.checked failed" in run.stderr, "the failure of silver.checked")
        line = next(line for line in run.stderr.splitlines() if "silver.checked failed" in line)
        assert "silver/checked.py" in line and "not allowed: " in line, run.stderr
        run.until(project.caught_up, "the other flows")

        hosts.write_text(good.replace("doc,north,90", "doc,north,often"))
        before = project.versions()
        seen = len(run.batches(BRONZE))
        project.produce(3_000)
        run.until(lambda: f"{SILVER} failed" in run.stderr, f"the failure of {SILVER}")
        line = next(line for line in run.stderr.splitlines() if f"{SILVER} failed" in line)
        assert str(hosts) in line and "mend" in line, run.stderr
        run.batch(BRONZE, after=seen)
        run.until(lambda: project.written(BRONZE) == len(project.records), "all of bronze")
        after = project.versions()
        assert after[BRONZE] > before[BRONZE]
        assert {after[t] - before[t] for t in (SILVER, GOLD, QUARANTINE)} == {0}
        failed = {e["flow"] for e in run.events if e.get("state") == "failed"}
        assert failed - {HOT} == {"silver.checked", SILVER}, run.said()  # HOT reads the broken table, too
        assert run.stop() == 1, run.said()

    hosts.write_text(good)
    (project.root / "silver" / "checked.py").unlink()
    (project.root / "gold" / "checked_hosts.sql").unlink()
    project.once()
    assert_lake_equals_oracle(project)
    place = Lake(project.conf.lake).places()["gold.checked_hosts"]
    assert log.flows(place.path) == {}  # the table below waited: it has had no batch
