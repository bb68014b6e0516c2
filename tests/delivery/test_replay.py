"""Quarantined records come back once the definition or the suite is mended: each once, whatever is killed."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness import GOLD, QUARANTINE, SILVER, Project, assert_same, once_each
from pyspark.sql import SparkSession
from running import gone

from headwater.quality.quarantine import Quarantine
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.lake import Lake

GOOD = {"hostname": "doc", "cpu": "cpu1", "usage": 50.0, "occurred_at": 1_700_000_000_000}
BETWEEN = "values_to_be_between(usage)"
BAD: dict[str, dict[str, Any]] = {
    BETWEEN: {"usage": 100.5},
    "values_to_match_regex(cpu)": {"cpu": "gpu1"},
    "error": {"hostname": "boom"},
    "future": {"occurred_at": 4_070_908_800_000},  # 2099
}
EACH = 10
REPLAY = f"{SILVER}.replay"
STEPS = ("pinned", "built", "staged", "committing", "committed", "sealed")

ONE = "return metrics.withColumn("
FRAGILE = 'F.lit(1.0) / F.when(F.col("hostname") == "boom", 0.0).otherwise(1.0)'
MENDED = 'F.try_divide(F.lit(1.0), F.when(F.col("hostname") == "boom", 0.0).otherwise(1.0))'


class Broken:
    """The reference project with a definition that fails on a host's name, and records that break rules."""

    def __init__(self, root: Path, broker: str) -> None:
        self.project = Project(root, broker=broker)
        self._definition = root / "silver" / "iot.py"
        self._suite = root / "quality" / "silver.cpu_metrics.json"
        self._write(FRAGILE, self._definition.read_text())
        records = [GOOD] * (10 * EACH) + [{**GOOD, **wrong} for wrong in BAD.values()] * EACH
        producer, topic = Producer(self.project.client()), self.project.topic("iot-data-input")
        for at, record in enumerate(records):
            record = {**record, "occurred_at": record["occurred_at"] + 1_000 * at}
            producer.produce(topic, json.dumps(record).encode(), partition=at % 4)
        assert producer.flush(30) == 0

    def mend(self, bound: int = 101) -> None:
        """Let the definition take every host, and readings up to a bound in percent."""
        self._write(MENDED, self._definition.read_text())
        suite = re.sub(r'"max_value": \d+', f'"max_value": {bound}', self._suite.read_text())
        self._suite.write_text(suite)

    def _write(self, share: str, text: str) -> None:
        text = text.replace(FRAGILE, share)
        if share not in text:
            text = text.replace(ONE, f'metrics = metrics.withColumn("share", {share})\n    {ONE}')
        self._definition.write_text(text)

    def replay(self, *arguments: str) -> dict[str, Any]:
        output = self.project.headwater("quarantine", "replay", SILVER, "--json", *arguments)
        return dict(json.loads(output))

    def rules(self) -> dict[str, int]:
        """{rule → open records that fail it}."""
        return Quarantine(Lake(self.project.conf.lake), SILVER).summary().rules

    def silver(self) -> dict[Any, tuple[Any, ...]]:
        rows = self.project.rows(SILVER, '_source.partition, _source."offset", hostname, usage, share')
        return once_each("silver", rows, 2)

    def gold(self) -> dict[Any, tuple[Any, ...]]:
        columns = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage, _partial.avg_usage_count"
        return once_each("gold", self.project.rows(GOLD, columns), 3)

    def all_read(self) -> bool:
        """Whether gold has read all of silver."""
        places = Lake(self.project.conf.lake).places()
        read = log.flows(places[GOLD].path)[GOLD]["consumed"][SILVER]["version"]
        return bool(read == log.head(places[SILVER].path))

    def assert_whole(self) -> None:
        """The tables hold what they would had the definition and the suite been right from the start."""
        silver, gold = self.silver(), self.gold()
        self.project.configure(lake=".headwater/again")
        self.project.once()
        assert_same("silver", self.silver(), silver)
        assert_same("gold", self.gold(), gold)


@pytest.fixture
def broken(tmp_path: Path, broker: str, spark: SparkSession) -> Broken:
    return Broken(tmp_path / "project", broker)


def test_a_replay_by_the_running_process_and_one_that_breaks_off(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = broken.project
    batches = [batch for batch in project.once() if batch["flow"] == SILVER]
    assert sum(batch["quarantined"] for batch in batches) == 4 * EACH
    assert broken.rules() == dict.fromkeys(BAD, EACH)
    listed = json.loads(project.headwater("quarantine", "ls", "--json"))
    assert [(one["table"], one["open"]) for one in listed] == [(SILVER, 4 * EACH)]
    shown = json.loads(project.headwater("quarantine", "show", SILVER, "--rule", "error", "--json"))
    assert len(shown) == EACH and "DIVIDE_BY_ZERO" in shown[0]["reason"] and "boom" in shown[0]["value"]

    broken.mend()
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", break_off)
        tried = project.tried("quarantine", "replay", SILVER, "--rule", BETWEEN)
    assert tried.returncode == 1 and "broken off" in tried.stderr, tried.stderr
    assert broken.rules() == dict.fromkeys(BAD, EACH)

    with project.live() as run:  # which commits what that one had staged
        run.until(lambda: BETWEEN not in broken.rules(), "the replay is carried out")
        done = broken.replay()
        left = {rule: EACH for rule in BAD if rule not in (BETWEEN, "error")}
        assert done["replayed"] == done["rows"] == EACH and done["failing"] == left == broken.rules()
        assert broken.replay()["replayed"] == 0
        broken.mend(bound=102)  # which the running process does not know
        refused = project.tried("quarantine", "replay", SILVER)
        assert refused.returncode == 1 and f"since process {run.pid}" in refused.stderr, refused.stderr
        broken.mend()
        run.until(broken.all_read, "gold has read the replayed rows")
        assert run.stop() == 0, run.said()

    assert len(broken.silver()) == 12 * EACH
    history = json.loads(
        project.headwater("quarantine", "show", SILVER, "--resolved", "--rule", "error", "-n", "99", "--json")
    )
    assert {(row["resolved"]["outcome"], row["resolved"]["generation"]) for row in history} == {
        ("replayed", 1)
    }
    assert len(history) == EACH
    project.headwater("quarantine", "discard", SILVER, "--why", "not ours", "--rule", "future")
    assert broken.rules() == {"values_to_match_regex(cpu)": EACH}
    assert len(project.rows(QUARANTINE, "*")) == 4 * EACH  # it keeps its history
    broken.assert_whole()


def break_off(step: str, flow: str) -> None:
    """What follows the staging of a replay is not done."""
    if (step, flow) == ("staged", REPLAY):
        raise RuntimeError("broken off")


@pytest.mark.torture
@pytest.mark.parametrize(
    ("step", "who"), [*((step, "python") for step in STEPS), ("pinned", "jvm"), ("committing", "jvm")]
)
def test_killed_at_every_step(broken: Broken, step: str, who: str) -> None:
    project = broken.project
    project.once()
    broken.mend()
    killed = project.tried("quarantine", "replay", SILVER, fail=f"{step}:{REPLAY}:1={who}")
    # Decoding and judging are done before the pin: what comes after needs no JVM, so its end may not matter.
    assert who == "jvm" or killed.returncode == -signal.SIGKILL, killed.stderr
    holder = project.holder(SILVER)
    if holder:
        gone(holder["jvm"])
    broken.replay()
    assert broken.rules() == dict.fromkeys(("values_to_match_regex(cpu)", "future"), EACH)
    project.once()
    broken.assert_whole()
