"""Processes over several streams: rows of all in the order of their event time, by the keys of each."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import EPOCH, cut, drawn, seeded
from test_final import Row as Drawn
from test_final import told as reached_before
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors.codes import Code
from headwater.flows.upstream import Upstream
from headwater.flows.waiting import WaitingFlow
from headwater.operations import erase, maintain, savepoints
from headwater.operations.maintain.horizon import holds
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner.changes import plan
from headwater.query.inspect.status import lag
from headwater.storage import log
from headwater.testing import Project, Record, apply

AUCTIONS, BIDS, LOTS = "silver.auctions", "silver.bids", "gold.lots"
RAW, LATE, STATE = "bronze.raw", f"{LOTS}_late", f"{LOTS}__state"
TABLES = {"auction": AUCTIONS, "bid": BIDS}
DELAY, OPEN, TTL = 10, 20, 40  # seconds
# Each auction and bid with how many came of its lot; a lot closes 20 s after its last auction, else it is
# forgotten 40 s after its last bid.
PROCESS = f'''from datetime import timedelta
import headwater as hw

@hw.process(source={TABLES}, keys={{"auction": ["id"], "bid": ["auction"]}},
            event_time={{"auction": "opened", "bid": "event_time"}}, delay="{DELAY} seconds",
            ttl="{TTL} seconds",
            columns="id STRING, at TIMESTAMP, source STRING, number INT, total BIGINT",
            state="number INT, total BIGINT")
def lots(row, lot, source):
    """Auctions and their bids."""
    if source is None:
        yield {{**lot.key, "at": lot.now, "source": "over", **lot.state}}
        lot.forget()
        return
    before = lot.state or {{"number": 0, "total": 0}}
    lot.state = {{"number": before["number"] + 1,
                 "total": before["total"] + (row["price"] if source == "bid" else 0)}}
    if source == "auction":
        lot.wake(lot.now + timedelta(seconds={OPEN}))
    yield {{**lot.key, "at": lot.now, "source": source, **lot.state}}
'''
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/market.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("id STRING, at BIGINT"))
def auctions(raw):
    """Auctions."""
    return raw.withColumn("opened", F.timestamp_seconds("at"))
@hw.table(source="bronze.raw", decode=hw.json("auction STRING, price BIGINT, at BIGINT"))
def bids(raw):
    """Bids."""
    return raw.withColumn("event_time", F.timestamp_seconds("at"))
''',
}
Event = tuple[str, int, int, str, int, int]  # stream, partition, offset, lot, price, event time in seconds
Seen = tuple[str, int, str, int, int]
COLUMNS = 'id, epoch("at")::BIGINT, source, number, total'


class Market(Project):
    """A project whose silver tables the test writes, and whose process it steps."""

    def __init__(self, root: Path, spark: SparkSession, process: str = PROCESS) -> None:
        super().__init__({**FILES, "gold/lots.py": process}, root, spark=spark)
        for name in TABLES.values():
            self.target(name)

    def add(self, stream: str, rows: list[Drawn]) -> None:
        """One commit of a silver table."""
        self.append(TABLES[stream], [values(stream, row) for row in rows])

    def seen(self, columns: str = COLUMNS, table: str = LOTS) -> list[Any]:
        return self.rows(table, columns)

    def late(self) -> Counter[Any]:
        return Counter(self.seen('_stream, _source."partition", _source."offset", "at"', LATE))


def values(stream: str, row: Drawn) -> dict[str, Any]:
    partition, offset, lot, price, at = row
    own = {"id": lot, "opened": at * 1_000_000} if stream == "auction" else {"auction": lot, "price": price}
    place = {"cluster": "local", "topic": "raw", "partition": partition, "offset": offset}
    time = {} if stream == "auction" else {"event_time": at * 1_000_000}
    return {**own, **time, "at": at, "ingested_at": 2_000_000_000_000_000, "_source": place}


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, as far as a flow asks for it: three partitions have records of both, none of them is quiet."""
    monkeypatch.setattr(Upstream, "known", lambda self: [f"local/raw/{n}" for n in range(3)])
    monkeypatch.setattr(Upstream, "left", lambda self, position, found: {})


def told(events: dict[str, list[Drawn]]) -> tuple[list[Event], Counter[Any]]:
    """What plain Python says is on time, in the order in which the process sees it, and what is late."""
    on_time, late = list[Event](), Counter[Any]()
    for stream, rows in events.items():
        for row, reached in reached_before(rows):
            partition, offset, _, _, at = row
            if reached > at + DELAY:
                late[stream, partition, offset, at] += 1
            else:
                on_time.append((stream, *row))
    turn = [*TABLES]
    return sorted(on_time, key=lambda e: (e[5], turn.index(e[0]), e[1], e[2], e[4])), late


def lots(events: Iterable[Event], before: int) -> list[Seen]:
    """What the process makes of rows whose time has come, and of timers that lie before a time."""
    found: list[Seen] = []
    held: dict[str, tuple[int, int, int, int | None]] = {}  # last, number, total, timer

    def elapse(lot: str, upto: int) -> None:
        if lot not in held:
            return
        last, number, total, timer = held[lot]
        if timer is not None and timer < upto:
            found.append((lot, timer, "over", number, total))
            del held[lot]
        elif timer is None and last + TTL < upto:
            del held[lot]

    for stream, _, _, lot, price, at in (event for event in events if event[5] < before):
        elapse(lot, at)
        _, number, total, timer = held.get(lot, (0, 0, 0, None))
        total += price if stream == "bid" else 0
        held[lot] = (at, number + 1, total, at + OPEN if stream == "auction" else timer)
        found.append((lot, at, stream, number + 1, total))
    for lot in list(held):
        elapse(lot, before)
    return sorted(found, key=repr)


def shuffled(draw: random.Random, events: dict[str, list[Drawn]]) -> Iterator[tuple[str, list[Drawn]]]:
    """Commits of both tables, each's in order; one may be far ahead of the other."""
    left = {stream: cut(draw, rows) for stream, rows in events.items()}
    while any(left.values()):
        stream = draw.choice([stream for stream in left if left[stream]])
        for _ in range(min(draw.randint(1, 3), len(left[stream]))):
            yield stream, left[stream].pop(0)


@pytest.mark.usefixtures("partitions")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.torture) for n in range(2, 8))])
def test_rows_of_all_streams_come_in_the_order_of_their_time_at_any_cut(
    interpreted: SparkSession, tmp_path: Path, seed: int
) -> None:
    draw = seeded(seed)
    events, early = {stream: drawn(draw, 150) for stream in TABLES}, 0
    on_time, late = told(events)
    assert {each[0] for each in late} == {*TABLES}
    case = Market(tmp_path, interpreted)
    flow, reached = case.flow(LOTS), Counter[tuple[str, int]]()
    for stream, commit in shuffled(draw, events):
        case.add(stream, commit)
        for partition, *_, at in commit:
            reached[stream, partition] = max(reached[stream, partition], at)
        if draw.random() < 0.3:
            continue  # the next batch takes several commits, of both
        while flow.step():
            pass
        low = min(reached[each, partition] for each in TABLES for partition in range(3))
        assert case.seen() == lots(on_time, low - DELAY)
        early += len(case.seen())
        if draw.random() < 0.2:
            flow = case.flow(LOTS)  # as after a restart
    assert early
    case.end(LOTS)
    newest = max(row[4] for rows in events.values() for row in rows)
    assert case.seen() == lots(on_time, newest + 1)
    assert case.late() == late
    case.flow(LOTS)._close(10**18, set())
    assert case.seen() == lots(on_time, newest + 1000)
    assert case.seen("1", STATE) == []


@pytest.mark.usefixtures("partitions")
def test_batches_take_first_what_the_others_wait_for(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of both is read along its event time, in batches that are bounded altogether."""
    monkeypatch.setattr(Upstream, "known", lambda self: ["local/raw/0"])
    case = Market(tmp_path, interpreted, PROCESS.replace("ttl=", "max_rows_per_batch=3, ttl="))
    for at in range(8):
        for stream in TABLES:
            case.add(stream, [(0, 2 * at + n, "ann", 1, EPOCH + 10 * at + n) for n in range(2)])
    flow, waiting = case.flow(LOTS), list[int]()
    while flow.step():
        waiting.append(len(WaitingFlow._due(flow, 10**18)))
    assert len(waiting) == 16
    assert max(waiting) <= 8
    assert [batch.rows_in for batch in case.batches(LOTS)] == [2] * 16


@pytest.mark.usefixtures("partitions")
def test_what_is_killed_anywhere_is_done_once(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded(5)
    events = {stream: drawn(draw, 40) for stream in TABLES}
    commits = [*shuffled(draw, events)]
    whole, case = Market(tmp_path / "whole", interpreted), Market(tmp_path / "killed", interpreted)
    steps = ["pinned", "built", "staged", "committing", "committed", "sealed"]
    for number, (stream, commit) in enumerate(commits):
        whole.add(stream, commit)
        case.add(stream, commit)

        def reach(step: str, flow: str, at: str = steps[number % len(steps)]) -> None:
            if step == at and flow == LOTS:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr("headwater.runtime.failpoints.reach", reach)
            case.flow(LOTS).step()
            pytest.fail("it was not killed")
    assert len(commits) >= len(steps)
    for each in (whole, case):
        each.end(LOTS)
    newest = max(row[4] for rows in events.values() for row in rows)
    assert case.seen() == whole.seen() == lots(told(events)[0], newest + 1)
    assert case.late() == whole.late()
    assert case.seen("*", STATE) == whole.seen("*", STATE)


SPLIT = {
    "silver/market.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("id STRING, price BIGINT, at BIGINT"))
def auctions(raw):
    """Those records of the topic that have no price."""
    return raw.where("price IS NULL").withColumn("opened", F.timestamp_seconds("at"))
@hw.table(source="bronze.raw", decode=hw.json("id STRING, price BIGINT, at BIGINT"))
def bids(raw):
    """The others."""
    bids = raw.where("price IS NOT NULL").withColumnRenamed("id", "auction")
    return bids.withColumn("event_time", F.timestamp_seconds("at"))
'''
}


class Split(Project):
    """A project in which both streams come from one topic; Kafka has nothing that bronze has not."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        super().__init__({**FILES, **SPLIT, "gold/lots.py": PROCESS}, root, spark=spark)
        self.clock.set(datetime.fromtimestamp(EPOCH, UTC))

    def come(self, *events: tuple[str, int | None, int]) -> None:
        """One commit of bronze: lot, price and second of each record; and what follows from it."""
        records = [{"id": lot, "price": price, "at": EPOCH + at} for lot, price, at in events]
        self.send("raw", [Record(each, partition=0) for each in records])
        self.step()

    def seen(self) -> list[tuple[int, str, int]]:
        """Second, source and number of the rows so far."""
        return self.rows(LOTS, f'epoch("at")::BIGINT - {EPOCH}, source, number')


def test_a_stream_that_is_silent_does_not_hold_the_other_back_for_long(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Split(tmp_path, interpreted)
    case.come(("ann", None, 0), ("ann", 1, 1))
    for number in range(1, 5):
        case.clock.advance("10s")
        case.come(("ann", 1, 10 * number))
        # The auctions' silence of 30 s ends their hold; the bids have come as far as they have.
        assert len(case.seen()) == (0 if number < 3 else 3 if number == 3 else 5), number
    assert case.seen()[:3] == [(0, "auction", 1), (1, "bid", 2), (10, "bid", 3)]
    assert (20, "over", 4) in case.seen()
    case.clock.advance("1m")
    case.step()
    assert {*case.seen()} >= {(30, "bid", 1), (40, "bid", 2)}  # by the clock, as all are silent


def test_what_is_done_to_tables_is_done_to_it_too(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Split(tmp_path / "project", interpreted)
    case.change("conf/local.yaml", "kafka: embedded", "kafka: embedded\nmaintain: {keep: 0s}")
    draw = seeded(9)
    for low in range(0, 300, 60):
        case.clock.set(datetime.fromtimestamp(EPOCH + low, UTC))
        case.come(
            *[(draw.choice("abc"), draw.choice([None, 1, 2]), low + n - 40 * (n % 7 == 6)) for n in range(30)]
        )
    assert len(case.seen()) > 20 and case.rows(LATE)
    for name in (AUCTIONS, BIDS):
        DeltaTable(case.lake.place(name).path).create_checkpoint()
    # It is behind in both of its inputs: maintenance leaves what it has not read.
    case.send(
        "raw", [{"id": lot, "price": price, "at": EPOCH + 300} for lot, price in (("a", 1), ("b", None))]
    )
    case.step(AUCTIONS, BIDS)
    project = case.definitions
    assert lag(project, case.lake, LOTS, {}) == 2
    held = {hold.table: hold.version for hold in holds(project, case.lake) if hold.who == LOTS}
    assert held == {name: log.head(case.lake.place(name).path) - 1 for name in (AUCTIONS, BIDS)} | {
        RAW: held[RAW]
    }
    maintain.maintain(project)
    for name in (AUCTIONS, BIDS):
        assert 0 < log.first(case.lake.place(name).path) <= held[name] + 1
    case.restart().step()
    assert lag(project, case.lake, LOTS, {}) == 0
    # It is what its definition makes of what it has read, as it is, and when it is built anew.
    before = {table: case.rows(table) for table in (LOTS, LATE, STATE)}
    (compared,) = reconcile(project, [LOTS])
    assert compared.same and compared.rows > 100
    case.rebuild(LOTS)
    assert {table: case.rows(table) for table in before} == before
    case.rebuild(BIDS)  # one of what it reads, and so it
    assert {table: case.rows(table) for table in before} == before
    # It comes back as it was, and goes on from there.
    savepoints.create(project, "before")
    since = datetime.now(UTC).isoformat()
    case.restart().come(("a", 1, 400), ("b", None, 450), ("c", 3, 500))
    after = {table: case.rows(table) for table in before}
    savepoints.restore(project, "before")
    assert {table: case.rows(table) for table in before} == before
    case.restart().step()
    assert {table: case.rows(table) for table in before} == after
    # Of both it takes what came since a time.
    with raises_code("START_NOT_POSSIBLE", match=f"{LOTS} finds rows that wait among all of {AUCTIONS}"):
        case.rebuild(BIDS, since=since)
    case.rebuild(AUCTIONS, BIDS, since=since)
    assert case.seen() == [(400, "bid", 1)]
    # Records go out of all that was made of them.
    savepoints.drop(case.lake, "before")
    erase.erase(project, erase.look(project, BIDS, "id = 'b'"))
    case.restart().step()
    assert case.rows(LOTS, "DISTINCT id") == [("a",), ("c",)]


def test_commands_tell_of_it(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Split(tmp_path, interpreted)
    case.come(("ann", None, 0), ("ann", 1, 1))

    def told(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--project", str(tmp_path)]).stdout

    assert "opened, event_time, delay 10 seconds" in told("describe", LOTS)
    assert f"{AUCTIONS}, {BIDS}" in told("describe", LOTS)
    drawn = told("graph", "--format", "mermaid")
    assert "n2 --> n4" in drawn and "n3 --> n4" in drawn
    assert {"auction:", "bid:"} <= {*re.findall(r"\"(\w+:)[^\" ]*/raw/0\"", told("state", "--json"))}
    assert LOTS in told("ls")
    assert [each.verdict.effect for each in plan(case.definitions, [LOTS])][-1] == "unchanged"
    case.change("gold/lots.py", '"bid": ["auction"]', '"bid": ["_rescued"]')
    assert "keys: auction: id; bid: auction → auction: id; bid: _rescued" in told("plan")


@pytest.mark.parametrize(
    ("old", "new", "code", "error"),
    [
        ('"bid": ["auction"]}', '"bid": ["price"]}', "STREAMS_DIFFER", "keys: string and bigint"),
        (
            '"bid": ["auction"]}',
            '"bid": ["auction", "price"]}',
            "STREAMS_DIFFER",
            "keys: string and string, b",
        ),
        (
            '"bid": ["auction"]}',
            '"bid": ["name"]}',
            "INPUT_COLUMN_UNKNOWN",
            f"needs the column name of {BIDS}",
        ),
        ('"bid": ["auction"]}', '"bid": []}', "KEYS_MISSING", "no keys"),
        (
            '"bid": "event_time"}',
            '"bid": "price"}',
            "COLUMN_UNSUITABLE",
            "price is bigint, which tells no time",
        ),
        (f'"bid": "{BIDS}"'.replace('"', "'"), "'bid': 'silver.auctions'", "STREAM_TWICE", "as two streams"),
        (f"{TABLES}", f"{[*TABLES.values()]}", "MODULE_FAILED", "is not of the streams"),
        ('"bid": ["auction"]}', '"bids": ["auction"]}', "MODULE_FAILED", "is not of the streams"),
        ("'bid': 'silver.bids'", "'bid': 'reference.clock'", "NOT_A_STREAM", "can't read row by row"),
    ],
)
def test_what_can_not_be_is_said_before_anything_runs(
    interpreted: SparkSession, tmp_path: Path, old: str, new: str, code: Code, error: str
) -> None:
    assert old in PROCESS
    with raises_code(code) as e:
        Market(tmp_path, interpreted, PROCESS.replace(old, new))
    assert error in str(e.value)
    assert "lots.py" in str(e.value)


def test_columns_of_one_name_have_one_type(interpreted: SparkSession, tmp_path: Path) -> None:
    text = FILES["silver/market.py"].replace("auction STRING, price", "auction STRING, id BIGINT, price")
    with raises_code("STREAMS_DIFFER", table=LOTS, match=f"{BIDS} differs .* in id string and id bigint"):
        Project(
            {**FILES, "silver/market.py": text, "gold/lots.py": PROCESS}, tmp_path, spark=interpreted
        ).restart()


def test_drive_and_apply_take_the_rows_of_each_stream(interpreted: SparkSession, tmp_path: Path) -> None:
    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(EPOCH + seconds, UTC)

    auctions = [{"id": "ann", "opened": at(5)}]
    bids = [{"auction": "ann", "price": 3, "event_time": at(second)} for second in (30, 5)]
    case = Market(tmp_path, interpreted)
    lots = case.definitions.tables[LOTS]
    found = hw.drive(lots, {"bid": bids, "auction": auctions})
    sources = [row["source"] for row in found.rows]
    assert sources == ["auction", "bid", "over", "bid"]
    assert found.keys["ann",].state == {"number": 1, "total": 3}
    assert hw.drive(lots, {"bid": bids[:1]}, until=at(30) + timedelta(seconds=TTL + 1)).keys == {}
    assert apply(case, LOTS, {BIDS: bids, AUCTIONS: auctions}).rows == found.rows
    with pytest.raises(ValueError, match="the streams are auction, bid"):
        hw.drive(lots, {"bids": bids})


@pytest.mark.usefixtures("partitions")
def test_a_failure_says_on_which_row_of_which_stream(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Market(tmp_path, interpreted, PROCESS.replace('row["price"]', 'row["id"]'))
    case.add("bid", [(0, 7, "ann", 1, EPOCH)])
    with raises_code("PROCESS_FAILED", table=LOTS, match="offset': 7} of bid: KeyError"):
        case.end(LOTS)


TWO_TOPICS = {
    **FILES,
    "bronze/raw.py": "import headwater as hw\nlots, offers = hw.topic('lots'), hw.topic('offers')\n",
    "silver/market.py": FILES["silver/market.py"]
    .replace("bronze.raw", "bronze.lots", 1)
    .replace("bronze.raw", "bronze.offers"),
    "gold/lots.py": PROCESS,
}


@pytest.mark.parametrize("once", [True, False])
def test_a_stream_that_bronze_has_nothing_of_yet_is_waited_for(
    interpreted: SparkSession, tmp_path: Path, once: bool
) -> None:
    """One topic is read before the other: what Kafka has of that is not late."""
    project = Project(TWO_TOPICS, tmp_path, spark=interpreted)
    ends = {"lots": {0: 2}, "offers": {0: 1}}
    project.send("lots", [{"id": "a", "at": at} for at in (0, 1_000)])
    project.step(AUCTIONS, BIDS)
    flow = project.flow(LOTS, ends=lambda topic: ends[topic], once=once)
    assert flow.step()
    project.send("offers", [{"auction": "a", "price": 7, "at": 3}])
    project.step(BIDS)
    assert flow.step()
    assert project.rows(LATE) == []
    project.end(LOTS)
    assert ("a", 3, "bid", 2, 7) in project.rows(LOTS, COLUMNS)
