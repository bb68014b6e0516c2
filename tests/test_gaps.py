"""What Kafka has no more stops the table that has not read it, and is accepted by a person alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call
from drained import RAW, Drained
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.common.wait import until
from headwater.connectors.kafka.extent import Extent, extent
from headwater.errors import FlowError
from headwater.flows import gaps
from headwater.flows.checkpoint import Checkpoint
from headwater.flows.gaps import Gap, Reached
from headwater.flows.realtime import RealtimeFlow
from headwater.operations import gaps as operation
from headwater.query.inspect.status import standings
from headwater.runtime import failpoints
from headwater.storage import log, target
from headwater.storage.intent import Intent, IntentFile

ALERT = """import headwater as hw

@hw.alert(topic='{}', source='bronze.raw', decode=hw.json('value INT'))
def told(raw):
    '''Each record.'''
    return raw.select('value')
"""
OF_SPARK = {
    "offsets/0": 'v1\n{}\n{"t":{"0":5}}',
    "offsets/1": 'v1\n{}\n{"t":{"0":7}}',
    "offsets/2": 'v1\n{}\n{"t":{"0":8}}',
    "commits/0": "v1\n{}",
    "commits/1": "v1\n{}",
    "sources/0/0": '\0v1\n{"t":{"0":3}}',
    "metadata": "{}",
}


@pytest.fixture
def case(tmp_path: Path, broker: str, spark: SparkSession) -> Drained:
    return Drained(tmp_path, broker)


def during(step: str, what: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Do something when a flow next reaches a step of its commit."""
    reach = failpoints.reach

    def reached(at: str, flow: str) -> None:
        reach(at, flow)
        if (at, flow) == (step, RAW):
            patch.setattr(failpoints, "reach", reach)
            what()

    patch.setattr(failpoints, "reach", reached)


def test_commits_say_which_topic_was_read_and_how_far(case: Drained) -> None:
    case.send(1, 2)
    assert case.taken() == [1, 2]
    assert case.flow["topics"] == {case.topic: extent(case.client, case.topic).id}
    assert case.flow["consumed"] == {case.topic: {"0": 2}}
    version = log.head(case.lake.place(RAW).path)
    assert case.taken() == [1, 2]
    assert log.head(case.lake.place(RAW).path) == version, "where nothing is new there is no commit"


def test_a_batch_that_was_committed_at_a_kill_is_sealed_though_nothing_comes(case: Drained) -> None:
    case.send(1)
    assert case.taken() == [1]
    intents = IntentFile(case.lake.flow_folder(RAW))
    mine = case.flow
    left = {"consumed": mine["consumed"], "clock": "2026-01-01T00:00:00Z", "fingerprint": "f"}
    intents.write(Intent(RAW, generation=1, sequence=mine["sequence"], **left))
    assert case.taken() == [1]
    found = intents.read()
    assert found is not None and found.sealed


def test_a_table_that_does_not_know_its_topic_yet_goes_on_and_learns_it(case: Drained) -> None:
    case.send(1)
    assert case.taken() == [1]
    path = case.lake.place(RAW).path / "_delta_log" / f"{log.head(case.lake.place(RAW).path):020d}.json"
    known = ', \\"topics\\": {\\"' + case.topic + '\\": \\"' + case.flow["topics"][case.topic] + '\\"}'
    assert known in path.read_text()
    path.write_text(path.read_text().replace(known, ""))
    target._OPEN.clear()  # as another process opens the table
    assert "topics" not in case.flow
    assert case.taken() == [1]
    assert case.flow["topics"] == {case.topic: extent(case.client, case.topic).id}


def test_a_topic_that_was_made_again_and_has_grown_past_the_table_stops_its_flow(case: Drained) -> None:
    case.send(1, 2, 3)
    assert case.taken() == [1, 2, 3]
    case.make_again(11, 12, 13, 14, 15)
    for _ in range(2):  # it stays so
        assert case.taken(code=1) == [1, 2, 3]
        assert "[TOPIC_RECREATED]" in case.said and "partition 0 from offset 3 on" in case.said
        assert f"headwater accept-gap {RAW}" in case.said
    done = call(["accept-gap", RAW, "--why", "a test's topic"], case.root)
    assert done.returncode == 0, done.stderr
    assert f"{RAW}: partition 0 from offset 3 on (recreated)" in done.stdout
    assert case.taken() == [1, 2, 3, 11, 12, 13, 14, 15]
    assert case.flow["topics"] == {case.topic: extent(case.client, case.topic).id}
    (line,) = case.gaps()
    assert (line["topic"], line["partition"], line["reason"]) == (case.topic, 0, "recreated")
    assert (line["first_offset"], line["last_offset"], line["why"]) == (3, None, "a test's topic")


@pytest.mark.parametrize("of_before", [False, True], ids=["which noted its topic", "of before it did"])
def test_an_alert_goes_on_behind_a_gap_that_its_table_accepts(case: Drained, *, of_before: bool) -> None:
    alerts = told(case)
    case.send(1, 2, 3)
    case.run()
    assert case.values(alerts) == [1, 2, 3]
    note = case.lake.flow_folder("silver.told") / "checkpoint" / "topic.json"
    if of_before:
        note.unlink()
    case.send(4)
    case.run()
    assert case.values(alerts) == [1, 2, 3, 4]
    case.make_again(11, 12, 13, 14, 15)
    case.run(code=1)  # of the table, which stops
    assert "silver.told goes on behind a gap" in case.said
    assert case.values(alerts) == [1, 2, 3, 4, 11, 12, 13, 14, 15]
    assert call(["accept-gap", RAW, "--why", "a test's topic"], case.root).returncode == 0
    case.send(16, 17, 18)
    case.expire(7)
    case.run(code=1)
    assert case.values(alerts) == [1, 2, 3, 4, 11, 12, 13, 14, 15, 18]


def test_an_alert_goes_on_behind_a_gap_that_arises_while_it_runs(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts, start = told(case), RealtimeFlow._start
    case.send(1)
    case.run()
    case.send(2, 3, 4)

    class Failing:
        """A query that fails when the table has all."""

        def awaitTermination(self, _: float) -> bool:  # noqa: N802 (as Spark calls it)
            assert until(lambda: case.flow["consumed"][case.topic]["0"] == 4, within=60)
            case.expire(3)
            raise RuntimeError("what it was to read is gone")

        def stop(self) -> None:
            monkeypatch.setattr(RealtimeFlow, "_start", start)

    monkeypatch.setattr(RealtimeFlow, "_start", lambda _: Failing())
    case.run()
    assert case.values(alerts) == [1, 4] and "silver.told goes on behind a gap" in case.said
    monkeypatch.setattr(RealtimeFlow, "_follow", lambda *_: {}["another"])
    case.run(code=1)
    assert "silver.told" in case.said and "another" in case.said


def test_a_checkpoint_that_is_begun_anew_is_so_whenever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, at = Checkpoint(tmp_path / "checkpoint", "silver.told", "t"), Reached("b", {0: 0, 1: 9})
    for id in ("", "a"):
        if id:
            checkpoint.begin(Reached(id, {0: 1}))
        for name, text in OF_SPARK.items():
            (checkpoint.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint.folder / name).write_text(text)
        assert checkpoint.has_begun() and checkpoint.reached() == Reached(id, {0: 7})
        (checkpoint.folder / "commits" / "1").unlink()
        assert checkpoint.reached() == Reached(id, {0: 5})
        (checkpoint.folder / "commits" / "0").unlink()
        assert checkpoint.reached() == Reached(id, {0: 3})
        assert Checkpoint(checkpoint.folder, "silver.told", "another").reached() is None
        for fails in ("delete_all", "delete"):
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint._store, fails, lambda _: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    checkpoint.begin(at)
            assert not checkpoint.has_begun() and checkpoint.reached() == at
        checkpoint.begin(at)
        assert not checkpoint.has_begun() and checkpoint.reached() == at
        assert [file.name for file in checkpoint.folder.iterdir()] == ["topic.json"]
    first = checkpoint.folder / "sources" / "0" / "0"
    first.parent.mkdir(parents=True)
    first.write_text("")
    with raises_code("NOTE_DAMAGED", table="silver.told", match="sources/0/0 is not what Spark has written"):
        checkpoint.reached()


def told(case: Drained) -> str:
    """A topic to which an alert of all records is sent."""
    topic, case.form = f"{case.topic}-alerts", '{"value": %s}'
    (case.root / "silver").mkdir()
    (case.root / "silver" / "told.py").write_text(ALERT.format(topic))
    return topic


def test_a_topic_that_is_made_again_while_a_batch_reads_it_is_not_mixed_with_the_former(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1, 2, 3)
    assert case.taken() == [1, 2, 3]
    case.send(4, 5)
    during("pinned", lambda: case.make_again(*range(11, 20)), monkeypatch)
    assert case.taken(code=1) == [1, 2, 3]
    assert "[TOPIC_RECREATED]" in case.said


def test_records_that_went_before_they_were_read_are_named_and_accepted(tmp_path: Path, broker: str) -> None:
    case = Drained(tmp_path, broker, partitions=2)
    case.send(1, 2)
    case.send(101, partition=1)
    assert case.taken() == [1, 2, 101]
    assert call(["accept-gap", RAW, "--dry-run"], case.root).stderr.endswith("has not read\n")
    case.send(3, 4, 5, 6)
    case.send(102, 103, partition=1)
    case.expire(5)
    case.expire(2, partition=1)
    assert case.taken(code=1) == [1, 2, 101]
    assert "[RECORDS_GONE]" in case.said and "Py4J" not in case.said
    assert f"topic {case.topic}" in case.said
    assert "partition 0 offsets 2 to 4, partition 1 offsets 1 to 1" in case.said
    version = log.head(case.lake.place(RAW).path)
    planned = call(["accept-gap", RAW, "--dry-run", "--json"], case.root)
    assert json.loads(planned.stdout) == [
        {"partition": 0, "first": 2, "last": 4, "reason": "expired"},
        {"partition": 1, "first": 1, "last": 1, "reason": "expired"},
    ]
    assert log.head(case.lake.place(RAW).path) == version, "a dry run changes nothing"
    assert case.taken(code=1) == [1, 2, 101]
    assert call(["accept-gap", RAW], case.root).returncode == 0
    assert case.taken() == [1, 2, 6, 101, 103]
    case.send(7)
    assert case.taken() == [1, 2, 6, 7, 101, 103]
    assert [(line["partition"], line["first_offset"], line["last_offset"]) for line in case.gaps()] == [
        (0, 2, 4),
        (1, 1, 1),
    ]
    (standing,) = standings(case.project)
    assert standing.gaps == 2
    said = call(["status"], case.root).stdout
    assert f'headwater query "FROM {RAW}__gaps"' in said
    with raises_code("NOTHING_MISSING", table=RAW):
        operation.accept(case.project, RAW)


def test_records_that_go_while_a_batch_reads_them_are_named(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1, 2)
    assert case.taken() == [1, 2]
    case.send(3, 4, 5)
    during("pinned", lambda: case.expire(4), monkeypatch)
    assert case.taken(code=1) == [1, 2]
    assert "[RECORDS_GONE]" in case.said and "partition 0 offsets 2 to 3" in case.said


@pytest.mark.parametrize("step", ["pinned", "staged", "committing", "committed"])
def test_a_gap_is_accepted_once_whatever_is_killed(
    case: Drained, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1, 2)
    assert case.taken() == [1, 2]
    case.send(3, 4)
    case.expire(3)

    def crash() -> None:
        raise FlowError("a crash", code="STOPPED")

    during(step, crash, monkeypatch)
    with raises_code("STOPPED"):
        operation.accept(case.project, RAW)
    if step == "pinned":
        operation.accept(case.project, RAW)
    assert case.taken() == [1, 2, 4]
    assert [line["first_offset"] for line in case.gaps()] == [2]


def test_where_gaps_are() -> None:
    now = Extent("b", {0: 5, 1: 0, 2: 3}, {0: 9, 1: 4, 2: 3})
    assert Reached("b", {0: 5, 1: 4, 2: 3}).gaps(now) == []
    assert Reached("", {0: 9, 1: 0, 2: 3}).gaps(now) == []
    late = Reached("b", {0: 2, 1: 6})  # and nothing of the third, which came later
    assert late.gaps(now) == [
        Gap(0, 2, 4, "expired"),
        Gap(1, 4, 5, "truncated"),
        Gap(2, 0, 2, "expired"),
    ]
    assert late.behind(now) == Reached("b", {0: 5, 1: 4, 2: 3})
    former = Reached("a", {0: 7, 3: 1})
    assert former.gaps(now) == [Gap(0, 7, None, "recreated"), Gap(3, 1, None, "recreated")]
    assert former.behind(now) == Reached("b", {0: 5, 1: 0, 2: 3})


def test_a_message_names_some_partitions_and_counts_the_rest(case: Drained) -> None:
    topic = case.project.topics[RAW]
    many = [Gap(partition, 0, 4, "expired") for partition in range(20)]
    assert "partition 7 offsets 0 to 4 and 12 more" in str(gaps.missing(topic, many))
