"""Every gold table holds the same of live batches, of its history in one go, and of a DuckDB query by hand.

The records of all systems of the reference project go into two lakes:

1. *whole*: as the generators give them; one `run --once` takes all of them, without a bound.
2. *live*: those of a partition in another order, within the lateness that is declared, and in parts that end
   somewhere else in each partition. Each part meets another run: the first ones are live, and are stopped at
   some moment; the last one is a `run --once`.

Each lake is compared with the queries of `by_hand.py` over its own silver tables, and with the other lake,
before and after the end of the input (`--close`). Doubles are equal at 1e-9 relative. A view of the clock is
compared with its query alone, at the clock of its last commit: each lake has its own.

The seed says records, order and parts, but for half of the buses, which report in the present, for the view
of the silent ones; time says which of them a live run takes when.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import by_hand
import duckdb
import pytest
from harness import ROOT, SEED, assert_same
from pyspark.sql import SparkSession
from running import until

from headwater.common.progress import Board
from headwater.connectors import produce
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import Faults, Record, Topic, run_producer
from headwater.connectors.produce.clock import DEFAULT_START, stepped
from headwater.project.load import load_project
from headwater.project.reference import CLOCK
from headwater.query import on_duckdb
from headwater.run.supervisor import Options, Run
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.names import state_name


class System(NamedTuple):
    """What the records of a generator are.

    Attributes:
        time: the field of event time.
        delay: how much later than the newest ones they may come (milliseconds).
        step: from one to the next (milliseconds).
        grain: event times are multiples of it (milliseconds), so that some lie just at a window's end.
    """

    time: str
    delay: int
    step: int
    grain: int = 1


SYSTEMS = {
    "buses": System("reported_at", 10_000, 1_000),
    "iot": System("occurred_at", 10_000, 1_000, 2_500),
    "ledger": System("transaction_time", 30_000, 1_000),
    "rides": System("ride_time", 10_000, 1_000),
    "sales": System("purchase_time", 10_000, 4_000),
    "web": System("viewed_at", 15_000, 300, 2_500),
}
FAULTS = Faults(late=0.04, duplicate=0.05, malformed=0.01, invalid=0.01)
MOVED = 4_000  # milliseconds: by less than that a record comes earlier or later
BOUNDS = (400, 1_500)  # the most rows of one batch of a live run
PARTIAL = {"_partial", "_start", "_end"}  # columns that hold partial results
OWN = {"_source", "ingested_at"}  # columns that say how a row came into its lake
Rows = dict[tuple[Any, ...], list[tuple[float, ...]]]


def test_every_gold_table_has_a_query_by_hand() -> None:
    project = load_project(ROOT)
    gold = {name for name in project.tables if name.startswith("gold.")}
    missing = sorted(gold - by_hand.TABLES.keys())
    assert not missing, f"tests/delivery/by_hand.py: add a query for {', '.join(missing)}"
    generators = {path.stem for path in (ROOT / "generators").glob("[!_]*.py")}
    missing = sorted(generators - SYSTEMS.keys())
    assert not missing, f"{__file__}: add to SYSTEMS what the records of {', '.join(missing)} are"


@pytest.mark.parametrize(
    ("seed", "count", "parts", "looks"),
    [  # at the end; or also before, while windows are open: `test_systems` looks at those of one run
        pytest.param(SEED, 1_200, 2, (True,)),  # runs of every flow there is
        *(pytest.param(SEED + n, 12_000, 3, (False, True), marks=pytest.mark.torture) for n in range(1, 4)),
    ],
)
def test_live_is_history_is_duckdb(
    tmp_path: Path,
    broker: str,
    spark: SparkSession,
    seed: int,
    count: int,
    parts: int,
    looks: tuple[bool, ...],
) -> None:
    print(f"seed {seed}, {count} records of each system, {FAULTS}")
    draw, runs = random.Random(seed), random.Random(f"the runs of {seed}")
    whole, live = (Twin(tmp_path / name, f"{name}-{seed}", broker) for name in ("whole", "live"))
    history = {system: produced(system, seed, count, draw) for system in SYSTEMS}
    partitions = [each for name, records in history.items() for each in moved(records, SYSTEMS[name], draw)]
    sent = cut(partitions, parts, draw)

    whole.send([record for records in history.values() for _, record in records])
    whole.once(close=looks[0])
    for part in sent[:-1]:
        live.run(part, runs)
    live.send(sent[-1])
    live.once(bound=runs.randrange(*BOUNDS), close=looks[0])
    batches = {name: (whole.batches[name], many) for name, many in live.batches.items()}
    print(f"batches of whole and live: {batches}")
    assert all(live.batches[name] > whole.batches[name] for name in live.project.topics)

    for ended in looks:
        if ended and not looks[0]:
            whole.once(close=True)
            live.once(close=True)
        assert_equal(whole, live, ended)


class Held(NamedTuple):
    """The rows of a lake, by table.

    Attributes:
        hand: what the queries by hand give for the gold tables.
        held: what these hold.
        shared: the same, of silver too, without what is the lake's own.
    """

    hand: dict[str, Rows]
    held: dict[str, Rows]
    shared: dict[str, Rows]


class Twin:
    """A lake of the whole reference project, from topics of its own.

    Alerts and sinks are left out: they are no tables, and a live alert would hold more task slots than the
    session of the tests has.
    """

    def __init__(self, root: Path, name: str, broker: str) -> None:
        project = load_project(ROOT)
        self.name = name
        self.client = {"bootstrap.servers": broker}
        self.sent: dict[str, int] = defaultdict(int)
        self.batches: dict[str, int] = defaultdict(int)
        topics = {key: replace(topic, topic=f"{topic.topic}-{name}") for key, topic in project.topics.items()}
        # The records' time is not the clock's, which shall end no window.
        tables = {key: replace(table, idle_timeout="1 day") for key, table in project.tables.items()}
        conf = project.conf.model_copy(update={"lake": root / "lake", "kafka": self.client})
        self.project = replace(
            project, root=root, conf=conf, topics=topics, tables=tables, alerts={}, sinks={}
        )
        create_topics(self.client, [Topic(topic.topic, topic.partitions) for topic in topics.values()])

    def send(self, records: list[Record]) -> None:
        own = [record._replace(topic=f"{record.topic}-{self.name}") for record in records]
        run_producer(iter(own), client=self.client)
        for record in own:
            self.sent[record.topic] += 1

    def once(self, *, bound: int | None = None, close: bool = False) -> None:
        """Take all that there is, so many rows at a time."""
        one, board = self._run(Options(once=True, close=close), bound)
        one()
        self._ended(board)

    def run(self, records: list[Record], draw: random.Random) -> None:
        """Send records while a run is live, and stop it at a moment at which it has not read all of them."""
        one, board = self._run(Options(), draw.randrange(*BOUNDS))
        flow = draw.choice([name for name in self.project.tables if name.startswith("silver.")])
        print(f"a live run until a batch of {flow}")
        sent = iter(records)

        def worked() -> bool:
            assert not board.failed(), {name: board.flows[name].error for name in board.failed()}
            begun = all(self.batches.get(each) or board.batches(each) for each in self.project.topics)
            return (begun and bool(board.batches(flow))) or done.done()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(one)
            try:
                while some := list(islice(sent, draw.randrange(200, 3_000))):
                    self.send(some)
                    time.sleep(draw.uniform(0, 0.5))
                until(worked, f"a batch of {flow}")
                time.sleep(draw.uniform(0, 1))
            finally:
                one.stop()
            done.result()
        self._ended(board)

    def read(self, ended: bool) -> Held:
        """What its tables hold, and what the queries by hand give of its silver tables."""
        found = Held({}, {}, {})
        places = Lake(self.project.conf.lake).places()
        with on_duckdb.reader() as connection:
            connection.execute("CREATE SCHEMA silver; CREATE SCHEMA gold; CREATE SCHEMA reference")
            for name, place in places.items():
                scan = f"FROM delta_scan('{place.path}')"
                if name in self.project.topics:
                    counted = connection.sql(f"SELECT count(*) {scan}").fetchall()
                    assert counted == [(self.sent[self.project.topics[name].topic],)], name
                elif name.startswith("silver."):
                    connection.execute(f"CREATE TABLE {name} AS {scan}")
                    found.shared[name] = rows(connection, scan, OWN)
                elif name.startswith("gold.") and name not in self.made_of():
                    found.held[name] = rows(connection, scan, PARTIAL)
                    found.shared[name] = rows(connection, scan, PARTIAL | OWN)
            for path in (ROOT / "conf" / "reference").glob("*.csv"):
                columns = path.with_suffix(".ddl").read_text()
                connection.execute(f"CREATE TABLE reference.{path.stem} ({columns})")
                connection.execute(f"COPY reference.{path.stem} FROM '{path}' (HEADER)")
            connection.execute(by_hand.METRES)
            connection.execute(f"SET VARIABLE ended = {ended}")
            for name, query in {**by_hand.HELPERS, **by_hand.TABLES}.items():
                if name in self.clocked():
                    now = log.flows(places[name].path)[name]["consumed"][CLOCK]["version"]
                    connection.execute(f"SET VARIABLE now = TIMESTAMPTZ '{now}'")
                connection.execute(f"CREATE TABLE {name} AS {query}")
            found.hand.update((name, rows(connection, f"FROM {name}")) for name in by_hand.TABLES)
        return found

    def made_of(self) -> set[str]:
        """What is kept of which the groups of views are made: each lake has its own way there."""
        return {state_name(name) for name, table in self.project.tables.items() if table.view}

    def clocked(self) -> set[str]:
        """The views of the clock."""
        return {name for name, table in self.project.tables.items() if CLOCK in table.sources}

    def _run(self, options: Options, bound: int | None) -> tuple[Run, Board]:
        most = {"max_rows_per_batch": bound} if bound else {}
        project = replace(self.project, conf=self.project.conf.model_copy(update=most))
        board = Board(notices=StringIO())
        return Run(project, options, board), board

    def _ended(self, board: Board) -> None:
        wrong = {name: flow.error for name, flow in board.flows.items() if flow.error}
        assert not wrong
        for name in board.flows:
            self.batches[name] += board.batches(name)


def assert_equal(whole: Twin, live: Twin, ended: bool) -> None:
    """Both lakes hold the same, and each what the queries by hand give."""
    one, other = whole.read(ended), live.read(ended)
    for twin, found in ((whole, one), (live, other)):
        assert found.held.keys() == by_hand.TABLES.keys(), "tests/delivery/by_hand.py has other tables"
        for name, want in found.hand.items():
            shown = want if ended != name.endswith("__state") else ["not yet, or no more"]
            assert shown, f"{name}: its query by hand gives nothing, which proves nothing"
            assert_near(f"{name} of {twin.name}, by hand and there", want, found.held[name])
    for name in one.shared.keys() - whole.clocked():
        assert_near(f"{name} of the whole and live", one.shared[name], other.shared[name])


def assert_near(name: str, want: Rows, got: Rows) -> None:
    """The same rows, their doubles equal at 1e-9 relative."""

    def near(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one, other, strict=True))

    def settled(key: tuple[Any, ...], values: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        wanted = want.get(key, [])
        return wanted if len(wanted) == len(values) and all(map(near, wanted, values)) else values

    assert_same(name, want, {key: settled(key, values) for key, values in got.items()})


def rows(connection: duckdb.DuckDBPyConnection, query: str, without: Collection[str] = ()) -> Rows:
    """What a query gives, some columns aside: {the values that are no doubles → the doubles, row by row}."""
    relation = connection.sql(query)
    names = sorted(set(relation.columns) - set(without))
    found: Rows = defaultdict(list)
    for row in relation.to_arrow_table().select(names).to_pylist():
        values = list(leaves(list(row.items())))
        exact = tuple("a double" if isinstance(value, float) else value for value in values)
        found[exact].append(tuple(value for value in values if isinstance(value, float)))
    return {key: sorted(values) for key, values in found.items()}


def leaves(value: Any) -> Iterator[Any]:
    """The values of a row, those within structs and arrays each by itself."""
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def produced(system: str, seed: int, count: int, draw: random.Random) -> list[tuple[int, Record]]:
    """The records of a system, each with the time when it was produced (epoch milliseconds).

    One partition has none any more from some time on, so that it alone says which windows are over.
    """
    generator, step = produce.load_generator(ROOT, system), timedelta(milliseconds=SYSTEMS[system].step)

    def timed(start: datetime, seed: int, faults: Faults) -> Iterator[tuple[int, Record]]:
        records = generator.records(seed=seed, faults=faults, clock=stepped(start, step))
        return zip(stepped(start, step), records, strict=False)

    start = DEFAULT_START + timedelta(milliseconds=draw.randrange(86_400_000))
    found = list(islice(timed(start, seed, FAULTS), count))
    (_, first), upto = found[0], draw.randrange(count // 2, count * 3 // 4)
    quiet = first.topic, first.partition
    found = [
        each for at, each in enumerate(found) if at < upto or (each[1].topic, each[1].partition) != quiet
    ]
    if system == "buses":  # half of them report until four minutes from now, so that they are not silent
        present = timed(datetime.now(UTC) - timedelta(minutes=6), seed + 1, Faults())
        found += [pair for pair in islice(present, 600) if (pair[1].key or b" ")[-1] % 2]
    return [(now, grained(record, SYSTEMS[system])) for now, record in found]


def grained(record: Record, system: System) -> Record:
    """The record with its event time rounded down, if it has one."""

    def rounded(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) // system.grain * system.grain)

    time = rb'("%b":)(\d{13})\b' % system.time.encode()
    return record._replace(value=record.value and re.sub(time, rounded, record.value))


def moved(records: list[tuple[int, Record]], system: System, draw: random.Random) -> list[list[Record]]:
    """The records of each partition in another order, by which the same rows are late.

    A record that is far behind may be late: the same ones come before it as did. The others are moved by less
    than would make them late.
    """
    passed: dict[tuple[str, int | None], int] = defaultdict(int)
    found = defaultdict(list)
    for now, record in records:
        at, partition = event_time(record, system.time), (record.topic, record.partition)
        behind = 0 if at is None else now - at
        held = behind > system.delay - MOVED
        passed[partition] += held
        place = (passed[partition], 0 if held else now + draw.uniform(0, MOVED))
        found[partition].append((place, record))
    return [[record for _, record in sorted(pairs, key=lambda pair: pair[0])] for pairs in found.values()]


def event_time(record: Record, field: str) -> int | None:
    """When a record says that it happened (epoch milliseconds); None where it can't be read."""
    if record.timestamp_ms is not None:
        return record.timestamp_ms
    try:
        value = json.loads(record.value or b"")[field]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return value if isinstance(value, int) else None


def cut(partitions: list[list[Record]], count: int, draw: random.Random) -> list[list[Record]]:
    """Parts of all partitions; each of these ends somewhere else."""
    parts: list[list[Record]] = [[] for _ in range(count)]
    for records in partitions:
        ends = sorted(draw.sample(range(1, len(records)), count - 1))
        for part, start, stop in zip(parts, [0, *ends], [*ends, len(records)], strict=True):
            part += records[start:stop]
    return parts
