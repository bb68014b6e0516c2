"""Processes: a function over each key's rows in the order of their event time, with a state and a timer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import COUNTS, EPOCH, VISITS, Counted, Row, drawn, seeded
from test_final import told as reached_before
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors.codes import Code
from headwater.flows import processed, waiting
from headwater.flows.upstream import Upstream
from headwater.project.load import load_project
from headwater.testing import Project

# Each visit with its number in a row of visits less than 20 s apart; and where such a row ends, one with -1.
PROCESS = f'''from datetime import timedelta
import headwater as hw

@hw.process(source="{VISITS}", keys=["user"], event_time="event_time", delay="10 seconds",
            columns="user STRING, at TIMESTAMP, number INT, total BIGINT", state="number INT, total BIGINT")
def counts(row, user):
    """Runs of visits."""
    if row is None:
        yield {{"user": user.key["user"], "at": user.now, "number": -1, "total": user.state["total"]}}
        user.forget()
        return
    before = user.state or {{"number": 0, "total": 0}}
    user.state = {{"number": before["number"] + 1, "total": before["total"] + row["n"]}}
    user.wake(user.now + timedelta(seconds=20))
    yield {{"user": row["user"], "at": user.now, **user.state}}
'''
COLUMNS = 'user, epoch("at")::BIGINT, number, total'


@pytest.fixture(autouse=True)
def partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, as far as a flow asks for it: three partitions have records, none of them is quiet."""
    monkeypatch.setattr(Upstream, "known", lambda self: [f"local/raw/{n}" for n in range(3)])
    monkeypatch.setattr(Upstream, "left", lambda self, position, found: {})


def told(rows: list[Row], delay: int) -> tuple[list[Row], Counter[Any]]:
    """What plain Python says is on time, in the order of event time, and what is late."""
    on_time, late = [], Counter[Any]()
    for row, reached in reached_before(rows):
        partition, offset, _, _, at = row
        if reached > at + delay:
            late[partition, offset, at] += 1
        else:
            on_time.append(row)
    return sorted(on_time, key=lambda row: (row[4], row[0], row[1], row[3])), late


def runs(rows: list[Row], before: int) -> list[tuple[str, int, int, int]]:
    """What the process makes of rows whose time has come, and of timers that lie before a time."""
    found: list[tuple[str, int, int, int]] = []
    held: dict[str, tuple[int, int, int]] = {}

    def end(user: str, upto: int) -> None:
        if user in held and held[user][0] + 20 < upto:
            last, _, total = held.pop(user)
            found.append((user, last + 20, -1, total))

    for _, _, user, n, at in (row for row in rows if row[4] < before):
        end(user, at)
        _, number, total = held.get(user, (at, 0, 0))
        held[user] = (at, number + 1, total + n)
        found.append((user, at, number + 1, total + n))
    for user in list(held):
        end(user, before)
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    "seed",
    [0, 1, 6, *(pytest.param(n, marks=pytest.mark.torture) for n in range(2, 5))],
)
def test_rows_come_in_the_order_of_their_time_at_any_cut(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = seeded(seed)
    if draw.random() < 0.5:  # not all rows that are due come at once
        monkeypatch.setattr(processed, "_MOST", draw.randint(2, 20))
        monkeypatch.setattr(waiting, "_LITTLE", 0)
    rows = drawn(draw, 150)
    on_time, late = told(rows, 10)
    assert late and on_time
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    for low in case.feed(draw, rows):
        assert case.seen(COLUMNS) == runs(on_time, low - 10)
    assert case.late() == late
    case.end(COUNTS)
    newest = max(row[4] for row in rows)
    want = runs(on_time, newest + 1)
    assert case.seen(COLUMNS) == want
    assert len(want) < len(runs(on_time, newest + 1000))  # timers behind the last row are left
    case.flow(COUNTS)._close(10**18, set())  # until their time comes
    assert case.seen(COLUMNS) == runs(on_time, newest + 1000)
    assert case.open() == 0


@pytest.mark.parametrize("at", ["built", "staged", "committing", "committed"])
@pytest.mark.parametrize("nth", [2, *(pytest.param(n, marks=pytest.mark.torture) for n in (1, 3))])
def test_a_batch_that_broke_off_is_ended_the_same_way(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, nth: int
) -> None:
    rows = drawn(random.Random(7), 60)
    whole = Counted(tmp_path / "whole", interpreted, PROCESS, "py")
    whole.add(rows)
    whole.end(COUNTS)
    case = Counted(tmp_path / "broken", interpreted, PROCESS, "py")
    case.add(rows[:30])
    case.flow(COUNTS).step()
    case.add(rows[30:])
    seen = Counter[str]()

    def reach(step: str, flow: str) -> None:
        seen[step] += 1
        if step == at and seen[step] == nth:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", reach)
        flow = case.flow(COUNTS)
        broken = False
        try:
            while flow.step():
                pass
        except KeyboardInterrupt:
            broken = True
    assert broken == (nth <= seen[at])
    case.end(COUNTS)
    assert case.seen(COLUMNS) == whole.seen(COLUMNS)
    assert case.late() == whole.late()
    assert case.seen("*", f"{COUNTS}__state") == whole.seen("*", f"{COUNTS}__state")


def test_rows_without_an_event_time_are_late(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    place = {"cluster": "local", "topic": "raw", "partition": 0, "offset": 0}
    case.append(VISITS, [{"user": "ann", "n": 1, "_source": place}])
    case.end(COUNTS)
    assert case.seen("user, _watermark, _lateness", f"{COUNTS}_late") == [("ann", None, None)]
    assert case.seen() == []


def test_a_timer_comes_although_no_row_does(interpreted: SparkSession, tmp_path: Path) -> None:
    """All partitions are silent, so the clock tells the time."""
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Upstream, "left", lambda self, position, found: dict.fromkeys(found, (0, 0)))
        case.add([(0, 0, "ann", 5, EPOCH)], ingested=EPOCH)
        flow = case.flow(COUNTS)
        while flow.step():
            pass
        case.clock.advance("30s")  # for which those are waited for that have begun without a row
        while flow.step():
            pass
    assert case.seen(COLUMNS) == [("ann", EPOCH, 1, 5), ("ann", EPOCH + 20, -1, 5)]
    assert case.open() == 0


def test_time_before_1970_comes_as_other_times_do(interpreted: SparkSession, tmp_path: Path) -> None:
    """A row that comes before the timer's time holds it up, in whichever batch."""
    first = -10 * 365 * 86_400
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    flow = case.flow(COUNTS)
    for offset, (user, at, others) in enumerate(
        [("ann", 0, 0), ("bob", 14, 14), ("ann", 18, 60), ("bob", 90, 90)]
    ):
        case.add([(0, offset, user, 1, first + at), *((p, offset, "eve", 1, first + others) for p in (1, 2))])
        while flow.step():
            pass
    assert sorted((at - first, number) for user, at, number, _ in case.seen(COLUMNS) if user == "ann") == [
        (0, 1),
        (18, 2),
        (38, -1),
    ]


def test_what_is_not_over_yet_is_not_looked_at(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    flow = case.flow(COUNTS)
    for at, user in enumerate(("ann", "bob", "eve")):
        case.add([(0, at, user, 1, EPOCH + 1000 * at)])
        assert flow.step()
    assert not flow._state.files()  # rows that wait are not copied there
    untils = [*(until * 1_000_000 for until in (EPOCH - 1, EPOCH + 1500, EPOCH + 2000)), 2**62]
    none, two, *all_ = [sorted(flow._due(until).to_pylist()) for until in untils]
    assert (none, two) == ([], [EPOCH * 1_000_000, (EPOCH + 1000) * 1_000_000])
    assert all_[0] == all_[1] and len(all_[0]) == 3


def test_keys_may_be_null_and_several(interpreted: SparkSession, tmp_path: Path) -> None:
    text = PROCESS.replace('keys=["user"]', 'keys=["user", "n"]')
    case = Counted(tmp_path, interpreted, text, "py")
    case.add(
        [(0, 0, None, 1, EPOCH), (0, 1, None, 1, EPOCH + 1), (1, 0, "ann", 1, EPOCH), (1, 1, "ann", 2, EPOCH)]
    )  # type: ignore[list-item]
    flow = case.flow(COUNTS)
    while flow.step():
        pass
    case.add([(0, 2, None, 1, EPOCH + 2)])  # type: ignore[list-item]
    case.end(COUNTS)
    assert Counter((row[0], row[2]) for row in case.seen(COLUMNS)) == Counter(
        [(None, 1), (None, 2), (None, 3), ("ann", 1), ("ann", 1)]
    )


TTL = PROCESS.replace(
    'state="number INT, total BIGINT")', 'state="number INT, total BIGINT", ttl="30 seconds")'
).replace("    user.wake(user.now + timedelta(seconds=20))\n", "")


def test_state_has_a_time_to_live(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, TTL, "py")
    case.add(
        [
            (0, 0, "ann", 1, EPOCH),
            (0, 1, "ann", 1, EPOCH + 30),
            (0, 2, "ann", 1, EPOCH + 61),
            (0, 3, "eve", 1, EPOCH + 200),
        ]
    )
    case.end(COUNTS)
    assert [row[:3] for row in case.seen(COLUMNS)] == [
        ("ann", EPOCH, 1),
        ("ann", EPOCH + 30, 2),
        ("ann", EPOCH + 61, 1),
        ("eve", EPOCH + 200, 1),
    ]
    assert case.seen("user", f"{COUNTS}__state") == [("eve",)]


def test_each_key_once_within_a_time(interpreted: SparkSession, tmp_path: Path) -> None:
    """Deduplication that is bounded: a key is known for as long as its state lives."""
    text = f'''import headwater as hw

@hw.process(source="{VISITS}", keys=["n"], event_time="event_time", delay="10 seconds",
            columns="n BIGINT, user STRING, event_time TIMESTAMP", state="seen BOOLEAN", ttl="1 minute")
def counts(row, visit):
    """Visits, each once."""
    if visit.state is None:
        yield {{name: row[name] for name in ("n", "user", "event_time")}}
    visit.state = {{"seen": True}}
'''
    case = Counted(tmp_path, interpreted, text, "py")
    case.add([(0, 0, "ann", 1, EPOCH), (1, 0, "bob", 1, EPOCH + 5), (2, 0, "eve", 2, EPOCH + 5)])
    case.add([(0, 1, "ann", 1, EPOCH + 50), (0, 2, "ann", 1, EPOCH + 120), (1, 1, "ann", 2, EPOCH + 300)])
    case.end(COUNTS)
    assert case.seen("n, user, epoch(event_time)::BIGINT") == [
        (1, "ann", EPOCH),
        (1, "ann", EPOCH + 120),
        (2, "ann", EPOCH + 300),
        (2, "eve", EPOCH + 5),
    ]


@pytest.mark.parametrize(
    ("old", "new", "code", "error"),
    [
        (
            'keys=["user"]',
            'keys=["name"]',
            "INPUT_COLUMN_UNKNOWN",
            "needs the column name of silver.visits, which has: user, n, at",
        ),
        ('keys=["user"]', "keys=[]", "KEYS_MISSING", "has no keys"),
        (
            'event_time="event_time"',
            'event_time="n"',
            "COLUMN_UNSUITABLE",
            "n is bigint, which tells no time",
        ),
        ('state="number INT', 'state="number IN', "DDL_INVALID", "its state are not Spark DDL"),
        (
            'columns="user STRING',
            'columns="_state STRING',
            "COLUMN_RESERVED",
            "the engine has a column _state of its own",
        ),
        ('delay="10 seconds"', 'delay="soon"', "INTERVAL_INVALID", "'soon' is no interval"),
    ],
)
def test_what_can_not_be_is_said_before_anything_runs(
    interpreted: SparkSession, tmp_path: Path, old: str, new: str, code: Code, error: str
) -> None:
    with raises_code(code, table="gold.counts", match=r"counts\.py:\d+: gold\.counts") as e:
        Counted(tmp_path, interpreted, PROCESS.replace(old, new), "py")
    assert error in str(e.value)


@pytest.mark.parametrize(
    ("old", "new", "code", "error"),
    [
        (
            '"number": -1',
            '"count": -1',
            "PROCESS_ROW_INVALID",
            "gives a column count; it declares user, at, number, total",
        ),
        ('"number": -1', '"number": "x"', "PROCESS_ROW_INVALID", "gives a row that does not fit its columns"),
        ('"number": -1', '"number": 0.5', "PROCESS_ROW_INVALID", "0.5 is no whole number"),
        ('"total": before', '"more": 1, "total": before', "PROCESS_ROW_INVALID", "more"),
        (
            'row["n"]}',
            'row["m"]}',
            "PROCESS_FAILED",
            "failed on the row {'cluster': 'local', 'topic': 'raw', 'partition': 0, 'off",
        ),
        (
            'user.state["total"]',
            "1 / 0",
            "PROCESS_FAILED",
            "failed on the timer of {'user': 'ann'} at 2025-10-09T",
        ),
        ("seconds=20", "seconds=-1", "PROCESS_FAILED", "would not lie at or after"),
    ],
)
def test_a_process_that_fails_stops_its_flow(
    interpreted: SparkSession, tmp_path: Path, old: str, new: str, code: Code, error: str
) -> None:
    case = Counted(tmp_path, interpreted, PROCESS.replace(old, new), "py")
    case.add([(0, 0, "ann", 5, EPOCH), (0, 1, "bob", 5, EPOCH + 100)])
    with raises_code(code, table="gold.counts", match=r"counts\.py:\d+: gold\.counts") as e:
        case.end(COUNTS)
    assert error in str(e.value)
    assert case.seen() == []


def test_a_row_at_the_time_of_the_timer_may_set_it_again(tmp_path: Path) -> None:
    """As one does that keeps several ends: the next one may be now, and its timer comes after this row."""

    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(EPOCH + seconds, UTC)

    @hw.process(
        source="silver.x",
        keys=["user"],
        event_time="at",
        delay="1s",
        columns="at TIMESTAMP",
        state="ends ARRAY<TIMESTAMP>",
    )
    def ends(row: hw.Row | None, user: hw.Keyed) -> Iterator[hw.Row]:
        left = [*(user.state or {"ends": []})["ends"]]
        if row is None:
            yield from ({"at": end} for end in left if end <= user.now)
            left = [end for end in left if end > user.now]
        else:
            left.append(user.now + timedelta(seconds=20))
        user.forget()
        if left:
            user.state = {"ends": left}
            user.wake(left[0])

    rows = [{"user": "ann", "at": at(seconds)} for seconds in (0, 20, 20, 30)]
    found = hw.drive(ends, rows, until=at(60))
    assert [row["at"] for row in found.rows] == [at(20), at(40), at(40), at(50)] and found.keys == {}

    @hw.process(
        source="silver.x", keys=["user"], event_time="at", delay="1s", columns="at TIMESTAMP", state="n INT"
    )
    def ever(row: hw.Row | None, user: hw.Keyed) -> None:
        user.wake(user.now)

    with pytest.raises(ValueError, match=r"a timer at .* would not lie after"):
        hw.drive(ever, rows, until=at(60))


def test_drive_needs_no_stream(tmp_path: Path) -> None:
    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(EPOCH + seconds, UTC)

    @hw.process(
        source=VISITS,
        keys=["user"],
        event_time="event_time",
        delay="10 seconds",
        columns="user STRING",
        state="since TIMESTAMP",
    )
    def silent(row: Any, user: hw.Keyed) -> Any:
        """Users of whom nothing is heard for a minute."""
        if row is None:
            yield {"user": user.key["user"], "since": user.state["since"]}  # type: ignore[index]
            user.forget()
            return
        user.state = {"since": user.now}
        user.wake(user.now + timedelta(minutes=1))

    rows = [
        {"user": "ann", "event_time": at(70)},
        {"user": "ann", "event_time": at(0)},
        {"user": "bob", "event_time": at(20)},
    ]
    found = hw.drive(silent, rows)
    assert found.rows == [{"user": "ann", "since": at(0)}]
    assert found.keys["ann",].timer == at(130)
    assert found.keys["bob",].state == {"since": at(20)}
    assert {row["user"] for row in hw.drive(silent, rows, until=at(130)).rows} == {"ann", "bob"}
    with raises_code("NOT_A_FUNCTION"):
        silent()


def test_a_definition_of_the_project_is_tried_without_a_stream() -> None:
    silences = load_project(Path(__file__).parents[1]).tables["gold.bus_silences"]
    times = [datetime.fromtimestamp(EPOCH + seconds, UTC) for seconds in (0, 60, 200, 210)]
    reports = [
        {"bus_id": "bus-01", "event_time": at, "route_id": "M10", "lat": 52.5, "lon": 13.4} for at in times
    ]
    driven = hw.drive(silences, reports, until=times[-1] + timedelta(minutes=3))
    assert [row["silent_since"] for row in driven.rows] == [times[1], times[-1]]
    assert driven.keys == {}
    assert [row["silent_since"] for row in hw.drive(silences, reports).rows] == [times[1]]


def test_what_is_kept_is_shown(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, PROCESS, "py")
    case.add([(0, 0, "ann", 5, EPOCH), (1, 0, "bob", 7, EPOCH), (2, 0, "bob", 7, EPOCH)])
    case.add([(partition, 1, "eve", 1, EPOCH + 11) for partition in range(3)])
    case.flow(COUNTS).step()
    shown = CliRunner().invoke(app, ["state", "--project", str(tmp_path)])
    assert "gold.counts__state" in shown.stdout, shown.output
    standing = CliRunner().invoke(app, ["status", "--project", str(tmp_path)])
    assert [line.split()[:2] for line in standing.stdout.splitlines() if "bronze.raw" in line] == [
        ["bronze.raw", "?"]  # no broker runs, and none is started
    ], standing.output
    of_key = CliRunner().invoke(
        app, ["state", COUNTS, "-k", "user=ann", "--project", str(tmp_path), "--json"]
    )
    assert '"number": 1' in of_key.stdout and "bob" not in of_key.stdout, of_key.output
    told = CliRunner().invoke(app, ["describe", COUNTS, "--project", str(tmp_path)])
    assert "10 seconds" in told.stdout, told.output


def test_a_time_that_python_has_not_is_told_by_its_column(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    process = """import headwater as hw

@hw.process(source="silver.sent", keys=["user"], event_time="at", delay="10 seconds", columns="user STRING",
            state="n INT")
def seen(row, user):
    yield {"user": row["user"]}
"""
    sent = """CREATE STREAMING TABLE silver.sent TBLPROPERTIES ('headwater.decode' = 'json',
    'headwater.schema' = 'user STRING, at TIMESTAMP, until BIGINT')
    AS SELECT user, at, timestamp_seconds(until) AS until, _source, ingested_at FROM STREAM bronze.raw"""
    files = {"bronze/raw.py": 'import headwater as hw\nraw = hw.topic("raw")\n', "silver/sent.sql": sent}
    project = Project({**files, "gold/seen.py": process}, tmp_path, spark=interpreted)
    rows = [{"user": "ann", "at": f"2026-01-01T00:0{n}:00Z", "until": 10**12} for n in range(3)]
    with raises_code("PROCESS_FAILED", match="is given a row whose until is .*out of range"):
        project.send("raw", rows).step()
        project.step()


@pytest.mark.parametrize(("first", "then"), [("30", "10"), ("10", "30")])
def test_each_row_is_given_once_though_the_delay_changes(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    monkeypatch.setattr(Upstream, "known", lambda self: ["local/raw/0"])
    process = f'''import headwater as hw

@hw.process(source="{VISITS}", keys=["user"], event_time="event_time", delay="{first} seconds",
            columns="user STRING, n BIGINT", state="n BIGINT")
def counts(row, user):
    """Each visit."""
    yield {{"user": row["user"], "n": row["n"]}}
'''
    case = Counted(tmp_path, interpreted, process, "py")
    numbers = iter(range(100))

    def come(*seconds: int) -> None:
        for second in seconds:
            n = next(numbers)
            case.add([(0, n, "ann", n, EPOCH + second)])
        flow = case.flow(COUNTS)
        while flow.step():
            pass

    come(0, 20, 40)
    case.change("gold/counts.py", f'delay="{first} ', f'delay="{then} ')
    come(60, 25, 45, 90)
    case.end(COUNTS)
    given = [n for (n,) in case.seen("n")]
    late = [offset for _, offset, _ in case.late().elements()]
    assert sorted([*given, *late]) == list(range(7))
