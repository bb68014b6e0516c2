"""Outer joins of streams that are final: pairs, rows without a partner and late rows, at any cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import EPOCH, cut, drawn, seeded
from test_final import Row as Drawn
from test_final import told as reached_before
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors.codes import Code
from headwater.flows import final_joins, waiting
from headwater.flows.upstream import Upstream
from headwater.operations import erase, maintain, savepoints
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner import explained
from headwater.planner.changes import plan
from headwater.query.inspect import state
from headwater.storage import log
from headwater.testing import Project, Record, apply

ORDERS, PARCELS, SENT = "silver.orders", "silver.parcels", "gold.sent"
STREAMS = {ORDERS: "placed", PARCELS: "left_at"}  # and their event times
LATE = f"{SENT}_late"
DELAY, BEFORE, AFTER = 10, 5, 20  # seconds
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/market.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("id STRING, order BIGINT, at BIGINT"))
def orders(raw):
    """Those records of the topic that are orders."""
    return raw.where("order IS NOT NULL").withColumn("placed", F.timestamp_seconds("at"))
@hw.table(source="bronze.raw", decode=hw.json("id STRING, parcel BIGINT, at BIGINT"))
def parcels(raw):
    """Those that are parcels."""
    return raw.where("parcel IS NOT NULL").withColumn("left_at", F.timestamp_seconds("at"))
''',
}
Row = tuple[str, int, int, int, str, int]  # stream, partition, offset, number, id, event time in seconds
Pair = tuple[str, int | None, int | None]


def statement(kind: str, most: int = AFTER) -> str:
    columns = "o.id, o.order, NULL" if kind == "LEFT ANTI" else "coalesce(o.id, p.id), o.order, p.parcel"
    names = zip(columns.rsplit(", ", 2), ("id", "order", "parcel"), strict=True)
    selected = ", ".join(f"{column} AS {name}" for column, name in names)
    return f"""CREATE STREAMING TABLE sent TBLPROPERTIES ('headwater.emit' = 'final') AS
SELECT {selected.replace("NULL AS", "CAST(NULL AS BIGINT) AS")}
FROM STREAM {ORDERS} o WATERMARK placed DELAY OF INTERVAL {DELAY} SECONDS
{kind} JOIN STREAM {PARCELS} WATERMARK left_at DELAY OF INTERVAL {DELAY} SECONDS AS p
ON o.id = p.id AND p.left_at - o.placed BETWEEN INTERVAL -{BEFORE} SECONDS AND INTERVAL {most} SECONDS"""


class Market(Project):
    """A project whose silver tables the test writes, and whose join it steps."""

    def __init__(self, root: Path, spark: SparkSession, query: str, kind: str = "sql") -> None:
        super().__init__({**FILES, f"gold/sent.{kind}": query}, root, spark=spark)
        for name in STREAMS:
            self.target(name)

    def add(self, stream: str, rows: list[Row]) -> None:
        """One commit of a silver table."""
        self.append(stream, list(map(values, rows)))

    def seen(self) -> Counter[Pair]:
        return Counter(self.rows(SENT, 'id, "order", parcel'))

    def late(self) -> Counter[Any]:
        return Counter(self.rows(LATE, '_stream, _source."partition", _source."offset", "at"'))


def values(row: Row) -> dict[str, Any]:
    stream, partition, offset, number, key, at = row
    place = {"cluster": "local", "topic": "raw", "partition": partition, "offset": offset}
    own = {"order" if stream == ORDERS else "parcel": number, STREAMS[stream]: at * 1_000_000}
    return {**own, "id": key, "at": at, "ingested_at": 2_000_000_000_000_000, "_source": place}


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, as far as a flow asks for it: three partitions have records of both, none of them is quiet."""
    monkeypatch.setattr(Upstream, "known", lambda self: [f"local/raw/{n}" for n in range(3)])
    monkeypatch.setattr(Upstream, "left", lambda self, position, found: {})


def of_both(draw: random.Random, count: int) -> dict[str, list[Row]]:
    """Rows of both streams, in the order of Kafka: some late, most with few partners or none."""

    def row(stream: str, number: int, drawn: Drawn) -> Row:
        partition, offset, user, n, at = drawn
        return stream, partition, offset, number, f"{user}{n % 4}", at

    return {
        stream: [row(stream, number, each) for number, each in enumerate(drawn(draw, count))]
        for stream in STREAMS
    }


def told(rows: dict[str, list[Row]]) -> tuple[dict[str, list[Row]], Counter[Any]]:
    """What plain Python says is in time, and what is late."""
    found: dict[str, list[Row]] = {stream: [] for stream in STREAMS}
    late = Counter[Any]()
    for stream, mine in rows.items():
        known = {(each[1], each[2], "", each[3], each[5]): each for each in mine}
        for place, reached in reached_before([*known]):
            row = known[place]
            if reached > row[5] + DELAY:
                late[stream, row[1], row[2], row[5]] += 1
            else:
                found[stream].append(row)
    return found, late


def joined(
    kind: str, rows: dict[str, list[Row]], there: set[Row], before: float, most: int = AFTER
) -> Counter[Pair]:
    """What the join gives.

    Args:
        kind: which join.
        rows: all that are in time.
        there: those that have been read.
        before: how far all partitions have come.
        most: how much later a parcel may be.
    """
    found, met = Counter[Pair](), set[Row]()
    for order in rows[ORDERS]:
        for parcel in rows[PARCELS]:
            if order[4] == parcel[4] and -BEFORE <= parcel[5] - order[5] <= most:
                met |= {order, parcel}
                if {order, parcel} <= there and kind != "LEFT ANTI":
                    found[order[4], order[3], parcel[3]] += 1
    for stream, kinds, wait in (
        (ORDERS, ("LEFT", "FULL", "LEFT ANTI"), max(most, 0)),
        (PARCELS, ("RIGHT", "FULL"), BEFORE),
    ):
        for row in {*rows[stream]} - met if kind in kinds else ():
            if row in there and row[5] + wait + DELAY < before:
                found[
                    row[4], row[3] if stream == ORDERS else None, row[3] if stream == PARCELS else None
                ] += 1
    return found


def shuffled(draw: random.Random, rows: dict[str, list[Row]]) -> Iterator[tuple[str, list[Row]]]:
    """Commits of both tables, each partition's in order; one may be far ahead of the other."""
    left = {}
    for stream, mine in rows.items():
        known = {(each[1], each[2], "", each[3], each[5]): each for each in mine}
        left[stream] = [[known[each] for each in commit] for commit in cut(draw, [*known])]
    while any(left.values()):
        stream = draw.choice([stream for stream in left if left[stream]])
        for _ in range(min(draw.randint(1, 3), len(left[stream]))):
            yield stream, left[stream].pop(0)


KINDS = ["LEFT", "RIGHT", "FULL", "LEFT ANTI"]


@pytest.mark.usefixtures("partitions")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in range(1, 3))])
def test_pairs_rows_alone_and_late_rows_at_any_cut(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
) -> None:
    draw = seeded(seed)
    if draw.random() < 0.5:  # not all waits that are over end at once
        monkeypatch.setattr(final_joins, "_MOST", draw.randint(2, 20))
        monkeypatch.setattr(waiting, "_LITTLE", 0)
    most = draw.choice([AFTER, AFTER, -2])
    rows, early = of_both(draw, 120), 0
    in_time, late = told(rows)
    assert {each[0] for each in late} == {*STREAMS}
    case = Market(tmp_path, interpreted, statement(kind, most))
    flow, reached, there = case.flow(SENT), Counter[tuple[str, int]](), set[Row]()
    for stream, commit in shuffled(draw, rows):
        case.add(stream, commit)
        there |= {*commit}
        for _, partition, *_, at in commit:
            reached[stream, partition] = max(reached[stream, partition], at)
        if draw.random() < 0.3:
            continue  # the next batch takes several commits, of both
        if draw.random() < 0.1:
            maintain.maintain(case.definitions)
        while flow.step():
            pass
        low = min(reached[each, partition] for each in STREAMS for partition in range(3))
        assert case.seen() == joined(kind, in_time, there, low, most)
        early += case.seen().total()
        if draw.random() < 0.2:
            flow = case.flow(SENT)  # as after a restart
    assert early
    case.end(SENT)
    assert case.seen() == joined(kind, in_time, there, float("inf"), most)
    assert case.late() == late


@pytest.mark.usefixtures("partitions")
def test_what_is_killed_anywhere_is_done_once(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded(random.randrange(2**32))
    rows, commits = of_both(draw, 50), list[tuple[str, list[Row]]]()
    case, there = Market(tmp_path, interpreted, statement("FULL")), set[Row]()
    steps, killed = ["pinned", "built", "staged", "committing", "committed", "sealed"], set[str]()
    while len(commits) < len(steps):
        commits = [*shuffled(draw, rows)]
    for number, (stream, commit) in enumerate(commits):
        case.add(stream, commit)
        there |= {*commit}

        def reach(step: str, flow: str, at: str = steps[number % len(steps)]) -> None:
            if step == at and flow == SENT:
                killed.add(step)
                raise KeyboardInterrupt

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr("headwater.runtime.failpoints.reach", reach)
            case.flow(SENT).step()
    assert killed == {*steps}
    case.end(SENT)
    in_time, late = told(rows)
    assert case.seen() == joined("FULL", in_time, there, float("inf"))
    assert case.late() == late


class Shop(Project):
    """A project in which both streams come from one topic; Kafka has nothing that bronze has not."""

    def __init__(self, root: Path, spark: SparkSession, query: str, kind: str = "sql") -> None:
        super().__init__({**FILES, f"gold/sent.{kind}": query}, root, spark=spark)
        self.clock.set(datetime.fromtimestamp(EPOCH, UTC))

    def come(self, *events: tuple[str, int | None, int | None, int]) -> None:
        """One commit of bronze: id, order, parcel and second of each record; and what follows from it."""
        records = [
            {"id": key, "at": EPOCH + at, **({"parcel": parcel} if order is None else {"order": order})}
            for key, order, parcel, at in events
        ]
        self.send("raw", [Record(each, partition=0) for each in records])
        self.step()

    def seen(self) -> list[Any]:
        return sorted(self.rows(SENT, 'id, "order", parcel'), key=str)


def test_a_row_waits_no_longer_once_the_other_stream_is_silent(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Shop(tmp_path, interpreted, statement("LEFT"))
    case.come(("a", 1, None, 0), ("b", 2, None, 1), ("a", None, 7, 2))
    assert case.seen() == [("a", 1, 7)]  # a pair is there at once
    case.clock.advance("10s")
    case.come(("c", 3, None, 60))
    assert case.seen() == [("a", 1, 7)]  # parcels have come as far as second 2
    case.clock.advance("31s")
    case.step()
    assert case.seen() == [("a", 1, 7), ("b", 2, None)]  # all are silent: by the clock, second 41 - 30
    case.come(("b", None, 8, 3))
    case.end()
    assert case.seen() == [("a", 1, 7), ("b", 2, None), ("c", 3, None)]
    assert case.rows(LATE, "_stream, parcel") == [(PARCELS, 8)]


FUNCTION = '''import headwater as hw
from pyspark.sql import functions as F

@hw.table(source=["silver.orders", "silver.parcels"], emit="final", delay="10 seconds",
          event_time={"silver.orders": "placed", "silver.parcels": "left_at"})
def sent(orders, parcels):
    """Orders, each with its parcels."""
    near = parcels.left_at.between(orders.placed, orders.placed + F.expr("INTERVAL 20 SECONDS"))
    pairs = orders.join(parcels, (orders.id == parcels.id) & near, "left")
    return pairs.select(orders.id, "order", "parcel", parcels.parcel.isNull().alias("is_alone"))
'''


def test_the_python_form_waits_alike(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Shop(tmp_path, interpreted, FUNCTION, "py")
    case.come(("a", 1, None, 0), ("b", 2, None, 1), ("b", None, 8, 22), ("a", None, 7, 19))
    case.end()
    assert sorted(case.rows(SENT, 'id, "order", parcel, is_alone')) == [
        ("a", 1, 7, False),
        ("b", 2, None, True),
    ]
    at = datetime.fromtimestamp(EPOCH, UTC)
    order, parcel = {"id": "c", "order": 3, "placed": at}, {"id": "c", "parcel": 9, "left_at": at}

    def sole(parcels: list[dict[str, Any]]) -> dict[str, Any]:
        (row,) = apply(case, SENT, {ORDERS: [order], PARCELS: parcels}).rows
        return dict(row)

    assert sole([parcel])["parcel"] == 9
    assert sole([])["is_alone"]


VIEW = "CREATE TEMPORARY VIEW {} AS SELECT * FROM STREAM {} WATERMARK {} DELAY OF INTERVAL 10 SECONDS;"


@pytest.mark.parametrize("both", [True, False])
def test_a_view_tells_the_time_of_its_stream(interpreted: SparkSession, tmp_path: Path, both: bool) -> None:
    query, watermark = statement("LEFT"), f" DELAY OF INTERVAL {DELAY} SECONDS"
    for stream, time in STREAMS.items() if both else [(PARCELS, "left_at")]:
        name = f"timed_{time}"
        query = query.replace(f" WATERMARK {time}{watermark}", "").replace(stream, name)
        query = f"{VIEW.format(name, stream, time)}\n{query}"
    assert query.count("WATERMARK") == 2
    case = Shop(tmp_path / "project", interpreted, query)
    case.come(("a", 1, None, 0), ("b", 2, None, 1), ("b", None, 8, 22), ("a", None, 7, 19))
    case.end()
    assert sorted(case.rows(SENT, 'id, "order", parcel')) == [("a", 1, 7), ("b", 2, None)]
    with raises_code("DELAYS_DIFFER", table=SENT, match="delay of gold.timed_"):
        Market(
            tmp_path / "other", interpreted, query.replace("INTERVAL 10 SECONDS", "INTERVAL 11 SECONDS", 1)
        )


COUNTED = '''import headwater as hw
from pyspark.sql import functions as F

@hw.table(source="silver.timed", snapshots="silver.parcels", emit="final")
def sent(timed, parcels):
    """Orders in windows, beside parcels as they are."""
    there = timed.join(parcels.select(F.col("id").alias("sent")), F.col("id") == F.col("sent"), "left")
    return there.groupBy(F.window("placed", "5 minutes"), "id").agg(F.count("*").alias("n"))
'''


def test_one_stream_beside_a_table_as_it_is_waits_for_no_partner(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    timed = VIEW.format("timed", ORDERS, "placed")
    case = Project({**FILES, "gold/sent.py": COUNTED, "silver/timed.sql": timed}, tmp_path, spark=interpreted)
    found = case.definitions.tables[SENT]
    assert (found.event_time, found.delay, found.event_times) == ("placed", "10 seconds", {})


def test_what_is_done_to_tables_is_done_to_it_too(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Shop(tmp_path / "project", interpreted, statement("FULL"))
    case.change("conf/local.yaml", "kafka: embedded", "kafka: embedded\nmaintain: {keep: 0s}")
    draw = seeded(random.randrange(2**32))
    for low in range(0, 300, 60):
        case.clock.set(datetime.fromtimestamp(EPOCH + low, UTC))
        case.come(
            *[
                (f"{draw.choice('abc')}{n % 3}", *draw.choice([(n, None), (None, n)]), low + n - back)
                for n in range(30)
                for back in [40 * (n % 7 == 6)]
            ]
        )
    alone = [row for row in case.seen() if None in row]
    assert alone and len(alone) < len(case.seen()) and case.rows(LATE)
    maintain.maintain(case.definitions)
    case.restart().step()
    before = {table: Counter(map(repr, case.rows(table))) for table in (SENT, LATE)}

    def same() -> bool:
        return {table: Counter(map(repr, case.rows(table))) for table in before} == before

    (compared,) = reconcile(case.definitions, [SENT])
    assert compared.same and compared.rows > 100
    case.rebuild(SENT)
    assert same()
    case.rebuild(PARCELS)  # one of what it reads, and so it
    assert same()
    savepoints.create(case.definitions, "before")
    case.restart().come(("a", None, 400, 400), ("b", 401, None, 450), ("b", None, 402, 460))
    assert not same()
    after = {table: Counter(map(repr, case.rows(table))) for table in before}
    savepoints.restore(case.definitions, "before")
    assert same()
    case.restart().step()
    assert {table: Counter(map(repr, case.rows(table))) for table in before} == after
    savepoints.drop(case.lake, "before")
    erase.erase(case.definitions, erase.look(case.definitions, ORDERS, "id = 'b1'"))
    case.restart().step()
    assert not [row for row in case.seen() if row[0] == "b1" and row[1] is not None]


def test_it_is_rebuilt_from_a_time_on_with_what_it_reads_alone(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Shop(tmp_path, interpreted, statement("LEFT"))
    case.come(("a", 1, None, 0), ("b", 2, None, 1))
    case.come(("a", None, 7, 2), ("c", None, 8, 98), ("c", 3, None, 100))
    assert case.seen() == [("a", 1, 7), ("b", 2, None), ("c", 3, 8)]
    with raises_code("START_NOT_POSSIBLE", match=f"{SENT} finds rows that wait among all of"):
        case.rebuild(SENT, since="2026-01-31")
    assert case.rebuild(ORDERS, PARCELS, since=str(log.head(case.lake.place("bronze.raw").path))).swapped
    assert case.seen() == [("c", 3, 8)]  # what came with the newest version of the topic


def test_commands_tell_of_it(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Shop(tmp_path, interpreted, statement("LEFT"))
    case.come(("a", 1, None, 0), ("a", None, 7, 2))

    def said(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--project", str(tmp_path)]).stdout

    described = said("describe", SENT)
    assert "placed, left_at, delay 10 seconds" in described and "when its time is over" in described
    assert f'"{ORDERS}:main/raw/0"' in said("state", "--json")
    assert SENT in said("state")
    with raises_code("NO_STATE", match=f"wait for a partner lie in what it reads: {ORDERS}, {PARCELS}"):
        state.rows(case.definitions, SENT, {}, 10)
    (found,) = explained.explain(case.context.spark, case.context.project, [SENT])
    assert found.way.startswith("pairs of new rows, and each row without a partner")
    assert found.joins == (
        f"new rows of {ORDERS} read rows of {PARCELS}: by id, left_at from placed -5 s to +20 s",
        f"new rows of {PARCELS} read rows of {ORDERS}: by id, placed from left_at -20 s to +5 s",
        f"rows of {ORDERS} without a partner are appended 20 s and the delay later",
    )
    assert [each.verdict.effect for each in plan(case.definitions, [SENT])][-1] == "unchanged"
    case.change("gold/sent.sql", "INTERVAL 20 SECONDS", "INTERVAL 30 SECONDS")
    assert [each.verdict.effect for each in plan(case.definitions, [SENT])][-1] == "rebuild"


WAITS = "AND p.left_at - o.placed BETWEEN INTERVAL -5 SECONDS AND INTERVAL 20 SECONDS"
REFUSED: list[tuple[str, str, Code, str]] = [
    (WAITS, "", "JOIN_UNBOUNDED", f"a row of {ORDERS} would wait for ever for one of {PARCELS}"),
    (WAITS, "AND p.left_at >= o.placed", "JOIN_UNBOUNDED", "would wait for ever"),
    ("LEFT JOIN", "JOIN", "WINDOW_MISSING", "none of its rows waits"),
    ("LEFT JOIN", "LEFT SEMI JOIN", "JOIN_NOT_APPENDED", "this LeftSemi join"),
    ("AND p.left_at", "AND p.parcel > 3 AND p.left_at", "PARTNERS_NOT_TOLD", "GreaterThan in the condition"),
    ("o.id = p.id", "o.id <=> p.id", "PARTNERS_NOT_TOLD", "EqualNullSafe"),
    ("o.id = p.id", "o.order / 2 = p.parcel / 2", "PARTNERS_NOT_TOLD", "EqualTo"),
    ("o.id = p.id", "CAST(o.order AS DOUBLE) = p.parcel", "PARTNERS_NOT_TOLD", "EqualTo"),
    (
        "o.id = p.id",
        "date_trunc('hour', o.placed) = date_trunc('hour', p.left_at)",
        "PARTNERS_NOT_TOLD",
        "Eq",
    ),
    (
        f"STREAM {PARCELS} WATERMARK left_at DELAY OF INTERVAL 10 SECONDS AS p",
        f"(SELECT * FROM STREAM {PARCELS} WATERMARK left_at DELAY OF INTERVAL 10 SECONDS WHERE parcel > 1) p",
        "PARTNERS_NOT_TOLD",
        "Filter below",
    ),
    (" WATERMARK left_at DELAY OF INTERVAL 10 SECONDS", "", "WATERMARK_MISSING", PARCELS),
    (
        "WATERMARK left_at DELAY OF INTERVAL 10",
        "WATERMARK left_at DELAY OF INTERVAL 20",
        "DELAYS_DIFFER",
        "20",
    ),
    ("WATERMARK left_at", "WATERMARK parcel", "COLUMN_UNSUITABLE", "parcel is bigint, which tells no time"),
    ("WATERMARK left_at", "WATERMARK gone", "INPUT_COLUMN_UNKNOWN", "needs the column gone"),
    ("'final'", "'final', 'headwater.allowed_lateness' = '1 minute'", "LATENESS_OF_FINAL_WINDOW", "final"),
]


@pytest.mark.parametrize(("old", "new", "code", "said"), REFUSED)
def test_what_can_not_be_is_said_before_anything_runs(
    interpreted: SparkSession, tmp_path: Path, old: str, new: str, code: Code, said: str
) -> None:
    query = (
        statement("LEFT").replace("p.parcel AS parcel", "1 AS parcel").replace("coalesce(o.id, p.id)", "o.id")
    )
    assert old in query
    with raises_code(code, table=SENT) as e:
        Market(tmp_path, interpreted, query.replace(old, new))
    assert said in str(e.value)
    assert "sent.sql" in str(e.value)


def test_filters_above_the_join_choose_of_what_it_gives(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Shop(tmp_path, interpreted, f"{statement('LEFT')} WHERE p.parcel IS NULL OR p.parcel > 7")
    case.come(("a", 1, None, 0), ("b", 2, None, 1), ("a", None, 7, 2), ("a", None, 8, 3))
    case.end()
    assert case.seen() == [("a", 1, 8), ("b", 2, None)]


WAITS_FOR = f"""CREATE STREAMING TABLE sent
TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.wait_for' = '20 seconds') AS
SELECT coalesce(o.id, p.id) AS id, o.order, p.parcel
FROM STREAM {ORDERS} WATERMARK placed DELAY OF INTERVAL 10 SECONDS AS o
{{}} JOIN STREAM(silver.parcels) p WATERMARK left_at DELAY OF INTERVAL 10 SECONDS
ON o.id = p.id AND p.left_at >= o.placed OR FALSE WHERE true"""


@pytest.mark.parametrize("kind", ["LEFT", "FULL OUTER"])
def test_rows_wait_as_long_as_they_are_told_to(interpreted: SparkSession, tmp_path: Path, kind: str) -> None:
    case = Shop(tmp_path, interpreted, WAITS_FOR.format(kind).replace(" OR FALSE WHERE true", ""))
    case.come(("a", 1, None, 0), ("a", None, 7, 20), ("b", 2, None, 0), ("b", None, 8, 21))
    case.end()
    alone = [("b", None, 8)] if kind != "LEFT" else []
    assert case.seen() == sorted([("a", 1, 7), ("b", 2, None), *alone], key=str)


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("'headwater.emit' = 'final', ", "", "PROPERTY_INVALID", "without headwater.emit = 'final'"),
        ("LEFT JOIN", "JOIN", "STATEMENT_NOT_SUPPORTED", "is of an outer join of two streams with ON"),
        (
            " p WATERMARK left_at DELAY OF INTERVAL 10 SECONDS",
            " p",
            "STATEMENT_NOT_SUPPORTED",
            "tell the time",
        ),
        ("STREAM(silver.parcels)", "silver.parcels", "STATEMENT_NOT_SUPPORTED", "two streams"),
        (" OR FALSE WHERE true", " OR FALSE", "PARTNERS_NOT_TOLD", "Or in the condition"),
        ("'20 seconds'", "'10 minuts'", "STATEMENT_NOT_SUPPORTED", "headwater.wait_for = '10 minuts'"),
        ("'20 seconds'", "'1 month'", "PARTNERS_NOT_TOLD", "LessThanOrEqual in the condition"),
    ],
)
def test_how_long_rows_wait_is_said_of_what_waits(
    interpreted: SparkSession, tmp_path: Path, old: str, new: str, code: Code, said: str
) -> None:
    query = WAITS_FOR.format("LEFT")
    if "OR FALSE" not in old:
        query = query.replace(" OR FALSE WHERE true", "")
    assert old in query
    with raises_code(code) as e:
        Market(tmp_path, interpreted, query.replace(old, new))
    assert said in str(e.value)
