"""A partition that has records, but none with an event time, is idle like one that has none."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from visits import ENDED, RAW, VISITS, Visits

from headwater.errors import BrokerError
from headwater.flows.context import Context
from headwater.flows.upstream import Upstream
from headwater.planner.event_time import EventTime, Wait
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.ranges import Position
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
        self.ends, self.arrived, self.away = {0: 0, 1: 0}, [0, 0], False
        super().__init__(root, spark)
        self.clock.set("2026-01-01T12:00:00Z")

    def _new(self) -> Context:
        return replace(super()._new(), ends=self._ends)

    def _ends(self, _topic: str) -> dict[int, int]:
        if self.away:
            raise BrokerError("Kafka is away", code="KAFKA_NOT_IN_RUN")
        return self.ends

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

    def come(self, *seconds: float | None, partition: int = 0) -> None:
        """Records of these seconds from the beginning, None for one without a time."""
        values = [EMPTY(0) if second is None else GOOD(NOON + second) for second in seconds]
        self.arrived[partition] += len(values)
        self.ends[partition] = max(self.ends[partition], self.arrived[partition])
        self.send("raw", [Record(value, partition=partition) for value in values])
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


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "after a restart"])
@pytest.mark.parametrize("waited", [0, 60], ids=["awaited", "not awaited any more"])
def test_what_has_come_to_kafka_while_nobody_looked_is_waited_for(
    interpreted: SparkSession, tmp_path: Path, waited: int, restarts: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.come(None, partition=1)
    case.come(5, 75)
    for second in range(20, waited + 1, 20):
        case.clock.advance("20s")
        case.come(75 + second)
    over = [0, 1][: waited // 30]
    assert case.over() == over
    case.clock.advance("1h")  # no run was up, or the machine slept
    case.ends[1] = 3
    if restarts:
        case.restart()
    case.come(600)
    assert case.over() == over
    for _ in range(3):
        case.clock.advance("20s")
        case.come(600)
    assert case.over() == over
    case.come(None, 185, partition=1)
    assert case.over() == [0, 1] and case.rows(f"{ENDED}_late") == []


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "after a restart"])
def test_a_wait_is_not_over_because_nobody_looked(
    interpreted: SparkSession, tmp_path: Path, restarts: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.target(RAW).append([], Identity(RAW, 1, 0, {"raw": {"0": 0, "1": 0}}))  # as Spark begins
    case.come(5, 200)
    case.clock.advance("1h")
    if restarts:
        case.restart()
    case.come(201)
    assert case.over() == []
    case.come(6, partition=1)  # as soon as its producer is awake
    assert case.over() == [] and case.rows(f"{ENDED}_late") == []


@pytest.mark.parametrize("once", [False, True], ids=["live", "once"])
def test_runs_that_come_hours_apart_do_not_wait_for_ever(
    interpreted: SparkSession, tmp_path: Path, once: bool
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    for hour in range(5):
        case.send("raw", [Record(EMPTY(0), partition=1)])
        case.ends = {0: hour + 1, 1: hour + 2}  # more of it is always on its way
        case.send("raw", [Record(GOOD(NOON + 60 * hour), partition=0)])
        if once:
            case.end(VISITS, ENDED, close=False)
        else:
            case.step(VISITS, ENDED)
        assert case.over() == ([] if hour < 3 else [0, 1])
        case.clock.advance("1h")
        case.restart()


def test_a_clock_that_is_set_back_takes_nothing_from_a_wait(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.come(None, partition=1)
    case.come(5, 200)
    case.clock.advance("20s")
    case.come(201)
    case.clock.advance(timedelta(hours=-1))
    case.come(202)
    case.clock.advance("9s")
    case.come(203)
    assert case.over() == []
    case.clock.advance("1s")
    case.come(204)
    assert case.over() == [0]


@pytest.mark.parametrize("timeout", [0, 500_000])
def test_a_wait_that_is_shorter_than_the_time_between_two_looks_ends(timeout: int) -> None:
    wait, over, begins = Wait(0, 3), [], 1 if timeout else 0
    for second in range(10):  # three records are always on their way
        wait = wait.looking(second * 1_000_000, come=second, there=second + 3, timeout=timeout)
        over.append(wait.over(timeout))
    assert over == [False] * (begins + 3) + [True] * (7 - begins)


def test_while_kafka_cannot_be_asked_a_wait_stands_still(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Busy(tmp_path / "project", interpreted)
    case.come(None, partition=1)
    case.come(5, 200)
    case.clock.advance("20s")
    case.come(201)
    case.away = True
    case.clock.advance("1s")
    case.come(202)
    case.away = False
    case.clock.advance("9s")
    case.come(203)
    assert case.over() == [0]


def test_kafka_is_asked_anew_when_the_machine_has_slept(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Busy(tmp_path / "project", interpreted)
    monkeypatch.setattr("headwater.flows.upstream.end_offsets", lambda _, topic: dict(case.ends))
    context = replace(case.context, ends=None, bootstrap="nowhere:9092")
    upstream, partition = Upstream(context, VISITS), f"{context.project.conf.cluster}/raw/1"
    for sent, span, known in ((5, 0.5, 5), (7, 0.4, 5), (9, 3600, 9)):  # seconds
        case.ends[1] = sent
        case.clock.advance(timedelta(seconds=span))  # what does not go with the clock stands while it sleeps
        assert upstream.left(Position(1, -1), {partition}) == {partition: (0, known)}


def test_a_wait_that_an_older_lake_has_noted_begins_anew() -> None:
    noted = {**EventTime(reached={"0": 5}).json(), "awaited": {"1": [7, 9]}}
    assert EventTime.parse(noted) == EventTime(reached={"0": 5})
