"""A partition that has records, but none with an event time, is idle like one that has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from visits import ENDED, RAW, VISITS, Visits

from headwater.flows.context import Context
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.testing import Record

NOON = 1_767_268_800  # 2026-01-01T12:00:00Z
GOOD, EMPTY, FILTERED, TIMELESS = (
    lambda at: json.dumps({"user": "a", "n": 1, "at": at}),
    lambda at: b"{",
    lambda at: json.dumps({"user": "a", "n": -1, "at": at}),
    lambda at: json.dumps({"user": "a", "n": 1}),
)


class Busy(Visits):
    """Two partitions of a topic to which more is sent all the time; the windows of `gold.ended` are final."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.ends = {0: 0, 1: 0}
        super().__init__(root, spark)
        self.clock.set("2026-01-01T12:00:00Z")

    def _new(self) -> Context:
        return replace(super()._new(), ends=lambda _: self.ends)

    def turn(self, second: Any, on_its_way: int = 1) -> None:
        """Twenty seconds, a record in each partition, and more of the second one in Kafka."""
        self.clock.advance("20s")
        at = int(self.clock.now().timestamp())
        sent = [Record(GOOD(at), partition=0, offset=self.ends[0])]
        come = self.sent
        sent.append(Record(second(at), partition=1, offset=come))
        self.sent += 1
        self.ends = {0: self.ends[0] + 1, 1: self.sent + on_its_way}
        self.send("raw", sent)
        self.step(VISITS, ENDED)

    def over(self) -> list[int]:
        """Minutes from the beginning whose windows are closed."""
        return [(since - NOON) // 60 for (since,) in super().rows(ENDED, "epoch(since)::BIGINT")]


@pytest.mark.parametrize(
    ("second", "restarts", "turns"),
    [(EMPTY, False, 8), (EMPTY, True, 5), (FILTERED, False, 5), (TIMELESS, False, 5)],
    ids=["malformed", "in many runs", "filtered", "without time"],
)
def test_a_partition_whose_records_have_no_time_is_idle_after_the_idle_timeout(
    interpreted: SparkSession, tmp_path: Path, second: Any, restarts: bool, turns: int
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    for number in range(1, turns + 1):
        case.turn(second)
        if restarts:
            case.restart()
        if number == 3:
            assert log.flows(case.lake.place(ENDED).path)[ENDED]["event_time"]["awaited"]
        assert case.over() == [minute for minute in range(3) if 20 * number >= 60 * minute + 70]
    case.turn(lambda at: GOOD(at - 100))
    case.turn(GOOD)
    assert case.rows(f"{ENDED}_late", "_source.partition") == [(1,)]
    done = case.rebuild(ENDED, verify=True)
    assert done.swapped and not any(done.differences), done.differences


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "after a restart"])
def test_a_partition_that_has_begun_without_a_time_is_waited_for(
    interpreted: SparkSession, tmp_path: Path, restarts: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    begun = [Record(GOOD(NOON + at), partition=0, offset=offset) for offset, at in enumerate((5, 200))]
    case.ends = {0: 2, 1: 1}  # nothing is on its way
    case.send("raw", [*begun, Record(EMPTY(0), partition=1, offset=0)])
    case.step(VISITS, ENDED)
    case.clock.advance("29s")
    if restarts:
        case.restart()
    case.step(VISITS, ENDED)
    assert case.over() == []
    case.ends[1] += 1
    case.send("raw", [Record(GOOD(NOON + 6), partition=1, offset=1)])
    case.step(VISITS, ENDED)
    assert case.over() == [] and case.rows(f"{ENDED}_late") == []
    case.clock.advance("29s")
    case.step(VISITS, ENDED)
    assert case.over() == []
    case.clock.advance("1s")  # now it is silent
    case.ends[0] += 1
    case.send("raw", [Record(GOOD(NOON + 200), partition=0, offset=2)])
    case.step(VISITS, ENDED)
    assert case.rows(ENDED, "visits") == [(2,)]
    done = case.rebuild(ENDED, verify=True)
    assert done.swapped and not any(done.differences), done.differences


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "after a restart"])
def test_a_partition_that_never_has_a_time_is_waited_for_once(
    interpreted: SparkSession, tmp_path: Path, restarts: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.ends = {0: 1, 1: 1}
    case.send("raw", [Record(GOOD(NOON), partition=0, offset=0), Record(EMPTY(0), partition=1, offset=0)])
    case.step(VISITS, ENDED)
    for turn in range(1, 6):
        case.clock.advance("29s")
        if restarts:
            case.restart()
        case.ends[0] += 1
        case.send("raw", [Record(GOOD(NOON + 60 * turn), partition=0, offset=turn)])
        case.step(VISITS, ENDED)
        assert case.over() == list(range(turn - 1 if turn > 1 else 0))


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "after a restart"])
def test_a_partition_that_is_empty_is_waited_for_once_while_a_run_is_live(
    interpreted: SparkSession, tmp_path: Path, restarts: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    sent = 0

    def good(*seconds: float) -> None:
        nonlocal sent
        case.ends = {0: sent + len(seconds), 1: 0}
        case.send(
            "raw", [Record(GOOD(NOON + at), partition=0, offset=sent + n) for n, at in enumerate(seconds)]
        )
        sent += len(seconds)
        case.step(VISITS, ENDED)

    case.target(RAW).append([], Identity(RAW, 1, 0, {"raw": {"0": 0, "1": 0}}))  # as Spark begins
    good(5, 200)
    case.clock.advance("29s")
    if restarts:
        case.restart()
    good(201)
    assert case.over() == []
    case.ends[1] = 1
    case.send("raw", [Record(GOOD(NOON + 6), partition=1, offset=0)])
    case.step(VISITS, ENDED)
    good(260)
    assert case.over() == [] and case.rows(f"{ENDED}_late") == []


def test_a_partition_that_stays_empty_is_waited_for_once(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.target(RAW).append([], Identity(RAW, 1, 0, {"raw": {"0": 0, "1": 0}}))
    for turn in range(5):
        case.ends[0] += 1
        case.send("raw", [Record(GOOD(NOON + 60 * turn), partition=0, offset=turn)])
        case.step(VISITS, ENDED)
        assert case.over() == list(range(turn - 1 if turn > 1 else 0))
        case.clock.advance("29s")


def test_a_partition_that_is_behind_is_waited_for(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Busy(tmp_path / "project", interpreted)
    for number in range(1, 8):
        case.turn(EMPTY, on_its_way=8 - number)  # eight records were there when it was first waited for
        assert case.over() == []
    case.turn(EMPTY)
    assert case.over() == [0, 1]


def test_when_only_records_without_a_time_come_the_clock_closes_what_lies_in_the_past(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.turn(EMPTY)
    for _ in range(3):
        assert case.over() == []
        case.clock.advance("20s")
        case.send("raw", [Record(b"{", partition=1, offset=case.sent)])
        case.sent += 1
        case.ends[1] = case.sent + 1
        case.step(VISITS, ENDED)
    assert case.over() == [0]


def test_offsets_that_have_no_records_are_not_waited_for(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.turn(GOOD, on_its_way=0)
    case.ends[1] += 2  # of a transaction that was aborted: bronze passes over them
    mine = case.bronze.flows[RAW]
    ends = {"raw": {**mine["consumed"]["raw"], "1": case.ends[1]}}
    case.bronze.append([], Identity(RAW, 1, mine["sequence"] + 1, ends))
    for _ in range(3):
        assert case.over() == []
        case.clock.advance("20s")
        case.step(VISITS, ENDED)
    assert case.over() == [0]
