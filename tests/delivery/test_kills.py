"""kill -9 of the Python process and of its JVM at every step of the commit: nothing lost, nothing twice.

A run that is to be killed drains what is new, as far as it gets; the next one finds what it left. The
short form kills the process once and its JVM once; `make torture` also walks all steps of all tables of
one lake, each kill on top of what the one before left behind, and then kills at random. What a crash at
any step leaves is also tried in one process, by `test_commit.py`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from harness import BRONZE, FINAL, GOLD, HOT, SEED, SILVER, Project, Running
from oracles import assert_lake_equals_oracle
from pyspark.sql import SparkSession
from running import alive, gone, until

from headwater.errors import LeaseError
from headwater.runtime.failpoints import STEPS
from headwater.storage import lease

# (step, flow, count, process). "staged" is reached where a batch has rows for a quarantine too; then the
# first "committing" of silver stands between the quarantine's commit and the table's own. Finals
# are always staged: late rows, open windows, the table.
SHORT = [
    ("pinned", SILVER, 1, "jvm"),
    ("built", BRONZE, 1, "python"),
    ("staged", SILVER, 1, "python"),
    ("committing", FINAL, 2, "jvm"),
    ("committed", GOLD, 1, "python"),
    ("sealed", SILVER, 1, "jvm"),
    ("built", HOT, 1, "python"),
]
REACHED = {
    BRONZE: [("pinned", 1), ("built", 1), ("committing", 1), ("committed", 1), ("sealed", 1)],
    SILVER: [
        ("pinned", 1),
        ("built", 1),
        ("staged", 1),
        ("committing", 1),
        ("committing", 2),
        ("committed", 1),
        ("sealed", 1),
    ],
    GOLD: [("pinned", 1), ("built", 1), ("committing", 1), ("committed", 1), ("sealed", 1)],
    FINAL: [
        ("pinned", 1),
        ("built", 1),
        ("staged", 1),
        ("committing", 1),
        ("committing", 2),
        ("committing", 3),
        ("committed", 1),
        ("sealed", 1),
    ],
    HOT: [("pinned", 1), ("built", 1), ("committing", 1), ("committed", 1), ("sealed", 1)],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, broker: str, spark: SparkSession) -> Project:
    return Project(tmp_path_factory.mktemp("kills") / "project", broker=broker)


def kill_at(project: Project, step: str, flow: str, count: int, who: str) -> None:
    """Run until the step is reached and the process or its JVM is killed there."""
    point = f"{step}:{flow}:{count}={who}"
    with project.run("--once", fail=point) as run:
        jvm = run.jvm()
        code = run.wait()
        reached = f"{step} of {flow} was not reached: {run.said()}"
        assert f"fail point {point}" in run.stderr, reached
        if who == "python":
            assert code == -signal.SIGKILL, reached
        elif flow in (GOLD, FINAL, HOT) and code == 0:  # from "built" on, they need no JVM
            done = {event["flow"] for event in run.events if event.get("state") == "done"}
            assert done >= {BRONZE, SILVER, GOLD} and step != "pinned", reached
        else:
            assert code == 1, reached
            assert "the JVM has ended" in run.stderr, run.said()
        gone(jvm)


def test_the_short_form_covers_every_step_and_both_processes() -> None:
    assert {step for step, _, _, _ in SHORT} == set(STEPS)
    assert {who for _, _, _, who in SHORT} == {"python", "jvm"}
    assert {flow for _, flow, _, _ in SHORT} == {BRONZE, SILVER, GOLD, FINAL, HOT}
    assert {step for steps in REACHED.values() for step, _ in steps} == set(STEPS)


@pytest.mark.torture
def test_killed_at_every_step_one_after_another(project: Project) -> None:
    for step, flow, count, who in SHORT:
        project.produce(3_000)
        began = time.monotonic()
        kill_at(project, step, flow, count, who)
        print(f"{step} {flow} {who}: {time.monotonic() - began:.1f} s")
    project.once()
    assert_lake_equals_oracle(project)


def test_a_successor_waits_for_a_stopped_writer_and_for_the_jvm_of_a_killed_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WAIT_FOR_JVM", 2.0)  # one that is stopped uses no longer time
    project.produce(3_000)
    # At its third step of this name it stands before the commit of a second batch's quarantine.
    with project.run(fail=f"committing:{SILVER}:3=stop") as first:
        jvm = first.jvm()
        first.batch(SILVER)
        first.kill(signal.SIGSTOP)  # a writer that is merely stopped still is the writer
        refused(project, f"process {first.pid} is writing it")
        first.kill(signal.SIGCONT)

        seen = len(first.batches(BRONZE))
        project.produce(3_000)
        first.batch(BRONZE, after=seen)
        until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, "the third step")
        signal_to(jvm, signal.SIGSTOP)  # it can't notice that its parent dies
        first.kill()
        assert first.wait() == -signal.SIGKILL
        refused(project, f"the JVM {jvm} of an ended run still lives")
        assert alive(jvm)
        signal_to(jvm, signal.SIGKILL)
        gone(jvm)
    project.once()
    assert_lake_equals_oracle(project)


def test_a_run_whose_jvm_is_killed_ends_and_the_next_one_goes_on(project: Project) -> None:
    project.produce(3_000)
    kill_at(project, "staged", SILVER, 1, "jvm")
    project.once()
    assert_lake_equals_oracle(project)


@pytest.mark.torture
@pytest.mark.parametrize("who", ["python", "jvm"])
@pytest.mark.parametrize("flow", REACHED)
def test_killed_at_each_step_of(project: Project, flow: str, who: str) -> None:
    """From the last step to the first: so what one kill leaves is ended before the next one's is reached."""
    print(f"seed {SEED}")
    for step, count in reversed(REACHED[flow]):
        project.produce(3_000)
        kill_at(project, step, flow, count, who)
    project.once()
    assert_lake_equals_oracle(project)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_killed_at_random_times_while_records_come(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    project = Project(tmp_path / "project", broker=broker)
    draw = random.Random(SEED)
    first_commits, first_golds = [], []
    killed = time.monotonic()
    with project.producing(rate=2_000) as producer:
        for number in range(21):
            with project.run() as run:
                first = run.batch()
                gold = run.batch(GOLD)
                if number:
                    first_commits.append(first["heard"] - killed)
                    first_golds.append(gold["heard"] - killed)
                    print(f"kill {number}: {first_commits[-1]:.1f} s, gold {first_golds[-1]:.1f} s")
                if number == 20:
                    producer.stop()
                    run.until(project.caught_up, "all that was produced, in gold", within=300)
                    run.kill(signal.SIGTERM)
                    assert run.wait() == 0, run.said()
                    break
                threading.Event().wait(draw.uniform(0, 3))  # seconds: the random time
                who = ("python", "jvm", "both")[number % 3]
                killed = kill(run, who)
    print(f"{len(project.records)} records; seconds to the first commit after each kill:")
    print(" bronze or any:", sorted(round(s, 1) for s in first_commits))
    print(" gold:", sorted(round(s, 1) for s in first_golds))
    assert_lake_equals_oracle(project)


def kill(run: Running, who: str) -> float:
    """SIGKILL now; returns when, after the process has ended."""
    jvm = run.jvm()
    at = time.monotonic()
    if who != "python":
        signal_to(jvm, signal.SIGKILL)
    if who != "jvm":
        run.kill()
    run.wait()
    until(lambda: not alive(run.pid), "the end of the process")
    return at


def refused(project: Project, reason: str) -> None:
    """A successor ends by itself, writes nothing, and says who holds the tables."""
    before = project.versions()
    with pytest.raises(LeaseError) as refusal:
        project.once()
    assert reason in str(refusal.value)
    assert project.versions() == before


def signal_to(pid: int, number: int) -> None:
    """A signal to a JVM that a run of this test named as its own."""
    os.kill(pid, number)
