"""Windows that are appended once, when they are over: final and late rows are all rows, at any cut."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from raising import raises_code
from typer.testing import CliRunner
from visits import Visits

import headwater as hw
from headwater.cli import app
from headwater.errors import LakeError, ProjectError
from headwater.flows.upstream import Upstream
from headwater.storage.identity import Identity
from headwater.testing import Project, Rows
from headwater.testing.rows import table

VISITS, COUNTS = "silver.visits", "gold.counts"
EPOCH = 1_760_000_400  # seconds; a whole number of minutes
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/visits.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("user STRING, n BIGINT, at BIGINT"))
def visits(raw):
    """One row per visit."""
    return raw.withColumn("event_time", F.timestamp_seconds("at"))
''',
}
AGGREGATES = "count(*) AS visits, sum(n) AS total, avg(n) AS mean, max_by(n, at) AS last, min(n) AS least"


def sql(window: str, properties: str, name: str = "window") -> str:
    if window == CUMULATIVE:
        return f"""CREATE STREAMING TABLE {COUNTS} TBLPROPERTIES ({properties}) AS
            SELECT window.start AS since, window.end AS upto, user, {AGGREGATES} FROM (
                SELECT *, {CUMULATIVE} AS windows
                FROM STREAM {VISITS} WATERMARK event_time DELAY OF INTERVAL 10 SECONDS)
            LATERAL VIEW explode(windows) AS window GROUP BY window, user"""
    return f"""CREATE STREAMING TABLE {COUNTS} TBLPROPERTIES ({properties}) AS
        SELECT {name}.start AS since, {name}.end AS upto, user, {AGGREGATES}
        FROM STREAM {VISITS} WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY {window}, user"""


TUMBLING, SLIDING = "window(event_time, '1 minute')", "window(event_time, '1 minute', '20 seconds')"
CUMULATIVE = "cumulative_windows(event_time, INTERVAL 1 MINUTE, INTERVAL 20 SECONDS)"
SESSION = "session_window(event_time, '30 seconds')"
FINAL = "'headwater.emit' = 'final'"

Row = tuple[int, int, str, int, int]  # partition, offset, user, n, event time in seconds


class Counted(Project):
    """A project whose silver table the test writes, and whose gold table it steps."""

    def __init__(self, root: Path, spark: SparkSession, statement: str, kind: str = "sql") -> None:
        super().__init__({**FILES, f"gold/counts.{kind}": statement}, root, spark=spark)
        self.target(VISITS)
        self.added: list[Row] = []

    def add(self, rows: list[Row], ingested: float | None = None) -> None:
        """One commit of the silver table."""
        self.append(VISITS, dicts(rows, ingested))
        self.added += rows

    def add_files(self, files: list[list[Row]]) -> None:
        """One commit of the silver table, of these files."""
        target, columns = self.target(VISITS), self.tables[VISITS].stored
        paths = [path for rows in files for path in target.put([table(dicts(rows), columns, VISITS)], "0")]
        mine = target.flows[VISITS]
        target.append(paths, Identity(VISITS, 1, mine["sequence"] + 1, mine["consumed"]))

    def feed(self, draw: random.Random, rows: list[Row]) -> Iterator[int]:
        """Let the flow take rows in commits of any size; after each, how far time has come everywhere."""
        flow = self.flow(COUNTS)
        for commit in cut(draw, rows):
            self.add(commit)
            while flow.step():
                pass
            if draw.random() < 0.2:
                flow = self.flow(COUNTS)  # as after a restart
            yield min(max((row[4] for row in self.added if row[0] == p), default=0) for p in range(3))

    def seen(self, columns: str = "*", table: str = COUNTS) -> Rows:
        return self.rows(table, columns)

    def late(self) -> Counter[tuple[int, int, int]]:
        """Which rows are late, and for how many windows."""
        return Counter(self.seen('_source."partition", _source."offset", "at"', f"{COUNTS}_late"))

    def open(self) -> int:
        return len(self.seen("1", f"{COUNTS}__state"))


def dicts(rows: list[Row], ingested: float | None = None) -> list[dict[str, Any]]:
    return [
        {
            "user": user,
            "n": n,
            "at": at,
            "event_time": at * 1_000_000,
            "ingested_at": int((ingested or time.time()) * 1_000_000),
            "_source": {"cluster": "local", "topic": "raw", "partition": partition, "offset": offset},
        }
        for partition, offset, user, n, at in rows
    ]


Windows = Callable[[int], list[tuple[int, int]]]  # those that hold an instant: start and end


def windows(size: int, slide: int) -> Windows:
    def of(at: int) -> list[tuple[int, int]]:
        newest = at // slide * slide
        return [(start, start + size) for start in range(newest, newest - size, -slide) if start + size > at]

    return of


def growing(at: int) -> list[tuple[int, int]]:
    """Those of a minute that grow by twenty seconds."""
    start = at // 60 * 60
    return [(start, end) for end in (start + 20, start + 40, start + 60) if end > at]


def told(rows: list[Row]) -> Iterator[tuple[Row, int]]:
    """Each row in Kafka's order, and the time that its partition had reached before its record."""
    reached: dict[int, int] = {}
    for (partition, _), found in groupby(sorted(rows, key=lambda row: row[:2]), key=lambda row: row[:2]):
        record = list(found)
        before = reached.get(partition, 0)
        yield from ((row, before) for row in record)
        reached[partition] = max(before, *(row[4] for row in record))


def split(
    rows: list[Row], of: Windows, delay: int, without: str | None = None
) -> tuple[dict[Any, list[Row]], Counter[Any]]:
    """What plain Python says is on time, by window and user, and what is late."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    late: Counter[Any] = Counter()
    for row, reached in told(rows):
        partition, offset, user, _, at = row
        for start, end in of(at) if user != without else ():
            if reached >= end + delay:
                late[partition, offset, at] += 1
            else:
                groups[start, end, user].append(row)
    return groups, late


def sessions(rows: list[Row], gap: int, delay: int) -> tuple[dict[Any, list[Row]], Counter[Any]]:
    """What plain Python says of sessions: the rows of each, and what is late."""
    late: Counter[Any] = Counter()
    on_time: dict[str, list[Row]] = defaultdict(list)
    for row, reached in told(rows):
        partition, offset, user, _, at = row
        if reached > at + delay:
            late[partition, offset, at] += 1
        else:
            on_time[user].append(row)
    return {key: found for user in on_time for key, found in grown(on_time[user], gap)}, late


def grown(rows: list[Row], gap: int) -> list[tuple[tuple[int, int, str], list[Row]]]:
    """The sessions of one user's rows."""
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row[4]):
        if found and row[4] <= found[-1][-1][4] + gap:
            found[-1].append(row)
        else:
            found.append([row])
    return [((each[0][4], each[-1][4] + gap, each[0][2]), each) for each in found]


def values(key: tuple[int, int, str], rows: list[Row]) -> tuple[Any, ...]:
    """The row of the table that a group becomes."""
    since, upto, user = key
    numbers = [n for *_, n, _ in rows]
    last = max((at, n) for *_, n, at in rows)[1]
    return (since, upto, user, len(rows), sum(numbers), sum(numbers) / len(rows), last, min(numbers))


def everything(groups: dict[Any, list[Row]]) -> list[tuple[Any, ...]]:
    """The rows of the table."""
    return sorted((values(*pair) for pair in groups.items()), key=repr)


COLUMNS = "epoch(since)::BIGINT, epoch(upto)::BIGINT, user, visits, total, mean, last, least"


def seeded(seed: int) -> random.Random:
    print(f"seed {seed}")
    return random.Random(seed)


def drawn(draw: random.Random, count: int) -> list[Row]:
    """Rows of three partitions, out of order, some very late, a partition ahead of another."""
    rows, offsets, now = [], Counter[int](), EPOCH
    for _ in range(count):
        now += draw.randrange(0, 8)
        behind = draw.choice([0, 0, 0, 3, 9, 15, 80, 200])
        partition = draw.randrange(3)
        user = draw.choice(["ann", "bob", "eve"])
        rows.append((partition, offsets[partition], user, draw.randrange(100), now - behind))
        offsets[partition] += draw.random() < 0.8  # else the next row is of the same record
    return rows


def cut(draw: random.Random, rows: list[Row]) -> list[list[Row]]:
    """Commits of rows, those of each partition in order, but some partitions later than others."""
    left = {p: [row for row in rows if row[0] == p] for p in range(3)}
    found = []
    while any(left.values()):
        one = []
        for partition in draw.sample(range(3), draw.randint(1, 3)):
            size = draw.randrange(1, 40)
            while len({row[:2] for row in left[partition][size - 1 : size + 1]}) < len(
                left[partition][size - 1 : size + 1]
            ):
                size += 1  # the rows of a record come together
            one += left[partition][:size]
            left[partition] = left[partition][size:]
        if one:
            draw.shuffle(one)
            found.append(one)
    return found


@pytest.fixture(autouse=True)
def partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, as far as a flow asks for it: three partitions have records, none of them is quiet."""
    monkeypatch.setattr(Upstream, "known", lambda self: [f"local/raw/{n}" for n in range(3)])
    monkeypatch.setattr(Upstream, "left", lambda self, position, found: {})


KINDS = {"tumbling": (TUMBLING, windows(60, 60)), "sliding": (SLIDING, windows(60, 20))}
KINDS["cumulative"] = (CUMULATIVE, growing)
KINDS["filtered"] = KINDS["tumbling"]  # rows that the query leaves out tell the time all the same


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in range(1, 3))])
@pytest.mark.parametrize("kind", KINDS)
def test_final_and_late_rows_are_all_rows_at_any_cut(
    interpreted: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    draw = seeded(seed)
    rows = drawn(draw, 150)
    window, of = KINDS[kind]
    without = "bob" if kind == "filtered" else None
    groups, late = split(rows, of, 10, without)
    assert late and groups
    statement = sql(window, FINAL)
    if without:
        statement = statement.replace("GROUP BY", f"WHERE user <> '{without}' GROUP BY")
    case = Counted(tmp_path, interpreted, statement)
    for low in case.feed(draw, rows):
        over = {key: found for key, found in groups.items() if key[1] + 10 <= low}
        assert case.seen(COLUMNS) == everything(over)
    assert case.late() == late
    assert case.open() == len(groups) - len(over)
    case.end(COUNTS)
    assert case.seen(COLUMNS) == everything(groups)
    assert case.open() == 0


def test_no_row_is_late_because_files_of_a_commit_stand_in_another_order(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    case.change("conf/local.yaml", "embedded\n", "embedded\nmax_rows_per_batch: 5\n")
    case.add([(0, 0, "ann", 1, EPOCH)])
    files = [[(0, at, "ann", 1, EPOCH + 60 * at) for at in range(n, n + 5)] for n in (1, 6, 11, 16)]
    case.add_files([files[0], files[2], files[1], files[3]])
    case.end(COUNTS)
    assert case.late() == {} and len(case.seen()) == 21
    assert [batch.rows_read for batch in case.batches(COUNTS) if batch.rows_read] == [1, 5, 10, 5]


@pytest.mark.parametrize("together", [True, False])
def test_rows_that_are_filtered_out_tell_the_time_too(
    interpreted: SparkSession, tmp_path: Path, together: bool
) -> None:
    statement = sql(TUMBLING, FINAL).replace("GROUP BY", "WHERE user <> 'bob' GROUP BY")
    case = Counted(tmp_path, interpreted, statement)
    rows = [(0, 0, "ann", 1, EPOCH), (0, 1, "bob", 3, EPOCH + 75), (0, 2, "ann", 1, EPOCH + 1)]
    for commit in [rows] if together else [[row] for row in rows]:
        case.add(commit)
    flow = case.flow(COUNTS)
    flow._max_rows = 1 if not together else 100
    while flow.step():
        pass
    assert case.late() == {(0, 2, EPOCH + 1): 1}
    case.end(COUNTS)
    assert case.seen("user, visits") == [("ann", 1)]


def test_the_python_form_gives_the_same_windows(interpreted: SparkSession) -> None:
    found = interpreted.sql(
        "SELECT timestamp_seconds(s) AS at FROM VALUES (0), (59), (-1), (61) AS t (s)"
    ).select(
        F.unix_seconds("at").alias("s"),
        F.explode(hw.cumulative_windows("at", size="1 minute", step="20 seconds")),
    )
    rows = found.select("s", F.unix_seconds("col.start"), F.unix_seconds("col.end")).collect()
    assert sorted(map(tuple, rows)) == sorted((s, *window) for s in (0, 59, -1, 61) for window in growing(s))


PYTHON = f'''import headwater as hw
from pyspark.sql import functions as F

@hw.table(source="{VISITS}", event_time="event_time", delay="10 seconds", emit="final")
def counts(visits):
    """Visits a minute."""
    groups = visits.groupBy(F.window("event_time", "1 minute"))
    return groups.agg(F.count("*").alias("visits")).select("window.start", "window.end", "visits")
'''


def test_a_function_may_be_final_and_group_by_the_window_alone(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    rows = drawn(seeded(4), 80)
    case = Counted(tmp_path, interpreted, PYTHON, "py")
    case.add(rows)
    while case.flow(COUNTS).step():
        pass
    groups, late = split([(*row[:2], "", *row[3:]) for row in rows], windows(60, 60), 10)
    low = min(max(row[4] for row in rows if row[0] == p) for p in range(3))
    over = [(start, end, len(found)) for (start, end, _), found in groups.items() if end + 10 <= low]
    assert case.seen('epoch("start")::BIGINT, epoch("end")::BIGINT, visits') == sorted(over, key=repr)
    assert case.late() == late and case.open() == len(groups) - len(over)


def test_sessions_without_keys(interpreted: SparkSession, tmp_path: Path) -> None:
    statement = sql(SESSION, FINAL, "session_window").replace(", user, count", ", '' AS user, count")
    rows = [(*row[:2], "", *row[3:]) for row in drawn(seeded(6), 60)]
    case = Counted(tmp_path, interpreted, statement.replace(f"{SESSION}, user", SESSION))
    case.add(rows[:30])
    case.add(rows[30:])
    while case.flow(COUNTS).step():
        pass
    groups, late = sessions(rows, 30, 10)
    assert case.late() == late
    case.end(COUNTS)
    assert case.seen(COLUMNS) == everything(groups)


def test_final_sessions_at_any_cut(interpreted: SparkSession, tmp_path: Path) -> None:
    draw = seeded(5)
    rows = drawn(draw, 150)
    groups, late = sessions(rows, 30, 10)
    assert late and any(len(found) > 3 for found in groups.values())
    case = Counted(tmp_path, interpreted, sql(SESSION, FINAL, "session_window"))
    for low in case.feed(draw, rows):
        over = {key: found for key, found in groups.items() if key[1] + 10 < low}
        assert case.seen(COLUMNS) == everything(over)
    assert case.late() == late
    case.end(COUNTS)
    assert case.seen(COLUMNS) == everything(groups)


@pytest.mark.parametrize("allowed", [None, 40])
def test_sessions_that_grow_at_any_cut(
    interpreted: SparkSession, tmp_path: Path, allowed: int | None
) -> None:
    draw = seeded(9)
    rows = drawn(draw, 150)
    groups, late = sessions(rows, 30, 10**9 if allowed is None else 10 + allowed)
    assert bool(late) == (allowed is not None)
    properties = f"'headwater.allowed_lateness' = '{allowed} seconds'" if allowed else "'headwater.keys' = ''"
    case = Counted(tmp_path, interpreted, sql(SESSION, properties, "session_window"))
    for _ in case.feed(draw, rows):
        pass
    assert case.seen(COLUMNS) == everything(groups)
    assert case.late() == late


def test_rows_within_the_allowed_lateness_still_correct_their_window(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    draw = seeded(3)
    rows = drawn(draw, 150)
    groups, late = split(rows, windows(60, 60), 10 + 60)
    assert late
    case = Counted(tmp_path, interpreted, sql(TUMBLING, "'headwater.allowed_lateness' = '1 minute'"))
    flow = case.flow(COUNTS)
    for commit in cut(draw, rows):
        case.add(commit)
        while flow.step():
            pass
    assert case.seen(COLUMNS) == everything(groups)
    assert case.late() == late


@pytest.mark.parametrize("window", [TUMBLING, SESSION])
def test_a_batch_of_late_rows_alone_changes_no_window(
    interpreted: SparkSession, tmp_path: Path, window: str
) -> None:
    """Two targets, of which one gets nothing, so that what it gets is staged as no file at all."""
    kind = "session_window" if window == SESSION else "window"
    case = Counted(tmp_path, interpreted, sql(window, "'headwater.allowed_lateness' = '1 minute'", kind))
    flow, on_time = case.flow(COUNTS), [(0, 0, "ann", 1, EPOCH), (0, 1, "ann", 2, EPOCH + 200)]
    for commit in (on_time, [(0, 2, "bob", 3, EPOCH + 1)], [(0, 3, "bob", 4, EPOCH + 201)]):
        case.add(commit)
        while flow.step():
            pass
    assert sorted(case.seen("user, last")) == [("ann", 1), ("ann", 2), ("bob", 4)]
    assert case.late() == {(0, 2, EPOCH + 1): 1}


def test_a_late_row_says_what_it_missed_and_by_how_much(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    flow = case.flow(COUNTS)
    case.add([(0, 0, "ann", 1, EPOCH), (0, 1, "ann", 2, EPOCH + 75), (0, 2, "bob", 3, EPOCH + 59)])
    while flow.step():
        pass
    told = 'user, n, epoch("window".start)::BIGINT, epoch(_watermark)::BIGINT, _lateness, ingested_at IS NULL'
    assert case.seen(told, f"{COUNTS}_late") == [("bob", 3, EPOCH, EPOCH + 65, 6.0, False)]
    assert [batch.late for batch in case.board.flows[COUNTS].recent] == [1]


class Quiet:
    """Kafka, as far as a flow asks for it: which partitions have nothing on its way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *quiet: int) -> None:
        self.quiet = {f"local/raw/{n}" for n in quiet}
        left = lambda _, position, found: {each: (0, each not in self.quiet) for each in found}  # noqa: E731
        monkeypatch.setattr(Upstream, "left", left)


LONG_AGO = 3600.0


def test_a_silent_partition_does_not_hold_the_others_back_unless_something_is_on_its_way(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Quiet(monkeypatch)
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    flow = case.flow(COUNTS)
    case.add([(2, 0, "eve", 1, EPOCH)], ingested=time.time() - LONG_AGO)
    case.add([(p, 0, "ann", 1, EPOCH + 75) for p in range(2)])
    while flow.step():
        pass
    assert case.seen("user") == []
    kafka.quiet = {"local/raw/2"}
    assert flow.step() and case.seen("user") == [("eve",)]
    assert not flow.step()
    case.add([(2, 1, "bob", 1, EPOCH + 50), (2, 2, "bob", 1, EPOCH + 60)])  # it speaks again
    while flow.step():
        pass
    assert case.late() == {(2, 1, EPOCH + 50): 1} and case.open() == 2


def test_when_all_is_silent_the_clock_closes_what_lies_in_the_past(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Quiet(monkeypatch, 0, 1, 2)
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    flow = case.flow(COUNTS)
    now = int(time.time())
    case.add([(0, 0, "ann", 1, now - 300), (0, 1, "bob", 2, now + 300)], ingested=time.time() - LONG_AGO)
    while flow.step():
        pass
    assert case.seen("user") == []  # two partitions have begun without a row
    case.clock.advance("30s")
    while flow.step():
        pass
    assert case.seen("user") == [("ann",)] and case.open() == 1
    case.add([(0, 2, "eve", 1, now - 100), (0, 3, "ann", 1, now - 290)], ingested=time.time())
    while case.flow(COUNTS).step():
        pass
    assert case.late() == {(0, 2, now - 100): 1, (0, 3, now - 290): 1}  # of its own partition, by now + 300


def test_a_run_once_leaves_windows_open_and_close_ends_them(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Quiet(monkeypatch, 0, 1, 2)
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    case.add([(p, 0, "ann", 1, EPOCH) for p in range(3)], ingested=time.time() - LONG_AGO)
    case.end(COUNTS, close=False)
    assert case.seen("user") == [] and case.open() == 1
    case.end(COUNTS)
    assert case.seen("user, visits") == [("ann", 3)] and case.open() == 0
    case.add([(0, 1, "ann", 1, EPOCH + 1), (0, 2, "ann", 1, EPOCH + 60)])
    case.end(COUNTS)
    assert case.late() == {(0, 1, EPOCH + 1): 1}  # the input had ended, so this is late
    assert case.seen("user, visits") == [("ann", 1), ("ann", 3)]


def test_a_time_that_the_source_has_not_is_refused(interpreted: SparkSession, tmp_path: Path) -> None:
    derived = PYTHON.replace("groups = visits.", "groups = visits.withColumn('seen', F.col('event_time')).")
    text = derived.replace('event_time="event_time"', 'event_time="seen"').replace(
        'window("event_time"', 'window("seen"'
    )
    with raises_code("INPUT_COLUMN_UNKNOWN"):
        Counted(tmp_path, interpreted, text, "py")


def test_where_a_table_above_has_failed_close_ends_nothing(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    case.add([(p, 0, "ann", 1, EPOCH) for p in range(3)])
    case.board.state(VISITS, "failed", "a broken disk")
    case.end(COUNTS)
    assert case.seen() == [] and case.open() == 1
    case.board.state(VISITS, "done")
    case.end(COUNTS)
    assert case.seen("user") == [("ann",)]


def test_state_says_what_is_kept(interpreted: SparkSession, tmp_path: Path) -> None:
    def said(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["state", *arguments, "--json", "--project", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    assert said() == []
    flow = case.flow(COUNTS)
    case.add([(0, 0, "ann", 1, EPOCH), (0, 1, "ann", 2, EPOCH + 75), (1, 0, "bob", 3, EPOCH + 80)])
    case.add([(2, 0, "eve", 3, EPOCH + 71), (2, 1, "eve", 3, EPOCH)])
    while flow.step():
        pass
    (kept,) = said()
    assert (kept["table"], kept["kept_in"], kept["keys"], kept["late"]) == (COUNTS, f"{COUNTS}__state", 3, 1)
    assert kept["watermark"] == when(EPOCH + 61) and kept["bytes"] > 0
    assert [each["reached"] for each in kept["partitions"]] == [when(EPOCH + s) for s in (75, 80, 71)]
    assert [row["total"] for row in said(COUNTS)] == [2, 3, 3]
    assert [row["total"] for row in said(COUNTS, "--key", "user=ann")] == [2]
    refused = CliRunner().invoke(app, ["state", VISITS, "--project", str(tmp_path)])
    assert isinstance(refused.exception, LakeError)
    assert "silver.visits keeps nothing between batches" in str(refused.exception)


def when(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_state_of_an_earlier_life_is_refused(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL))
    case.add([(0, 0, "ann", 1, EPOCH)])
    case.flow(COUNTS).step()
    shutil.rmtree(case.lake.place(COUNTS).path.parent)
    for _ in range(2):
        with raises_code(
            "TABLE_OF_EARLIER_LIFE", table="gold.counts__state", match="headwater rebuild gold.counts"
        ):
            case.flow(COUNTS)
    case.rebuild(COUNTS)
    assert len(case.rows(f"{COUNTS}__state")) == 1
    case.add([(0, 1, "ann", 2, EPOCH + 1)])
    case.end(COUNTS)
    assert case.rows(COUNTS, "user, total") == [("ann", 3)]


WRONG = {
    "no window": (
        "SELECT user, count(*) AS n FROM STREAM silver.visits GROUP BY user",
        "has no window of time",
    ),
    "no source": (
        "SELECT window.start AS a, count(*) AS n FROM (SELECT event_time FROM STREAM silver.visits "
        "WATERMARK event_time DELAY OF INTERVAL 1 SECOND) GROUP BY window(event_time, '1 minute')",
        "without the column _source",
    ),
    "half a session": (
        "SELECT session_window.start AS a, day(session_window.end) AS d, count(*) AS n "
        "FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 1 SECOND "
        "GROUP BY session_window(event_time, '1 minute')",
        "computes with a session",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_can_not_be_final_is_refused(interpreted: SparkSession, tmp_path: Path, what: str) -> None:
    text, said = WRONG[what]
    with pytest.raises(ProjectError, match=said):
        Counted(tmp_path, interpreted, f"CREATE STREAMING TABLE {COUNTS} TBLPROPERTIES ({FINAL}) AS {text}")


def test_no_table_has_the_name_of_anothers_late_rows(tmp_path: Path, interpreted: SparkSession) -> None:
    case = Visits(tmp_path / "project", interpreted)
    late = "CREATE STREAMING TABLE ended_late AS SELECT user FROM STREAM silver.visits"
    case.write({"gold/ended_late.sql": late})
    says = (
        r"gold/ended_late\.sql:1: gold\.ended_late has the name of the table of gold\.ended for its late rows"
    )
    with raises_code("NAME_TWICE", table="gold.ended_late", match=says):
        case.drain()


@pytest.mark.parametrize(("first", "then"), [("60", "10"), ("10", "60")])
def test_each_window_is_appended_once_though_the_delay_changes(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    monkeypatch.setattr(Upstream, "known", lambda self: ["local/raw/0"])
    delay = "DELAY OF INTERVAL {} SECONDS"
    case = Counted(tmp_path, interpreted, sql(TUMBLING, FINAL).replace(delay.format(10), delay.format(first)))

    def come(*seconds: int) -> None:
        for second in seconds:
            case.add([(0, len(case.added), "ann", 1, EPOCH + second)])
        flow = case.flow(COUNTS)
        while flow.step():
            pass

    come(0, 50, 71)
    assert len(case.seen()) == (first == "10")
    case.change("gold/counts.sql", delay.format(first), delay.format(then))
    come(55)
    assert len(case.seen()) == 1 and case.late() == {(0, 3, EPOCH + 55): 1}
    come(140, 300)
    case.end(COUNTS)
    assert sum(n for (n,) in case.seen("visits")) + sum(case.late().values()) == len(case.added)
    assert len(case.seen()) == 4


@pytest.mark.parametrize(
    ("time", "visits"), [("timestamp_seconds(at)", 1), ("date_trunc('hour', event_time)", 2)]
)
def test_windows_of_another_time_than_the_watermarks_close_once(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: str, visits: int
) -> None:
    """A batch in which no row lies far behind its partition may have some for windows that are over."""
    monkeypatch.setattr(Upstream, "known", lambda self: ["local/raw/0"])
    case = Counted(tmp_path, interpreted, sql(f"window({time}, '1 minute')", FINAL))
    place = {"cluster": "local", "topic": "raw", "partition": 0}
    for offset, (at, told) in enumerate([(EPOCH, EPOCH), (EPOCH + 70, EPOCH + 80), (EPOCH + 5, EPOCH + 85)]):
        row = {
            "user": "ann",
            "n": 1,
            "at": at,
            "event_time": told * 1_000_000,
            "ingested_at": told * 1_000_000,
        }
        case.append(VISITS, [row | {"_source": place | {"offset": offset}}])
        flow = case.flow(COUNTS)
        while flow.step():
            pass
    assert case.seen("visits") == [(visits,)] and sum(case.late().values()) == 1


def test_the_last_of_growing_windows_ends_with_their_size(interpreted: SparkSession) -> None:
    found = interpreted.sql("SELECT timestamp_seconds(22 * 3600) AS at").select(
        F.explode(hw.cumulative_windows("at", size="1 day", step="7 hours"))
    )
    assert [
        tuple(row) for row in found.select(F.unix_seconds("col.start"), F.unix_seconds("col.end")).collect()
    ] == [(0, 86_400)]
