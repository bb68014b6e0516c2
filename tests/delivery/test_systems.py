"""Each system of the reference project holds what plain Python makes of its records, whatever is killed.

`make test` drains sales, rides, web, buses and the ledger; `make torture` also kills them at random, in one
project and each by itself, more often. In the end all records of the ledger come once more, and change
nothing. The system `iot` is that of the tests beside this one.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from banking import assert_ledger, assert_ledger_ended, assert_sent, merchants, warehouse
from confluent_kafka import Producer
from harness import SEED, Project, assert_same, once_each
from oracles import (
    POSITIONS,
    SESSIONS,
    assert_buses,
    assert_rides,
    assert_sales,
    assert_silences,
    assert_visits_ended,
    assert_web,
)
from postgres import Server
from pyspark.sql import SparkSession

from headwater.connectors.produce import Faults, Record
from headwater.storage import log
from headwater.storage.lake import Lake

FAULTS = Faults(late=0.04, duplicate=0.02, malformed=0.01, invalid=0.01)
REPORTS, SILENT = "gold.bus_reports", "gold.silent_buses"
# The flows of each system after one of whose batches a run is killed.
FLOWS = {
    "sales": ("silver.purchases", "gold.item_sales", "gold.item_sales_1h", "gold.top_sellers"),
    "rides": ("silver.lift_rides", "gold.lift_ride_counts", "gold.lift_rides_10m"),
    "web": ("silver.page_views", SESSIONS, "gold.page_views_1m"),
    "buses": ("silver.bus_positions", REPORTS, POSITIONS, SILENT, "gold.bus_silences"),
    "ledger": (
        *("silver.transaction_events", "silver.accounts_changes", "silver.customers_history"),
        *("silver.transactions", "silver.settled_transactions", "silver.credit_legs", "gold.transfers"),
        *("gold.account_balances", "gold.customer_spend", "gold.segment_spend", "gold.movements"),
    ),
}
OPEN: dict[str, Callable[[Project], None]] = {
    "sales": assert_sales,
    "rides": assert_rides,
    "web": assert_web,
    "buses": assert_buses,
    "ledger": assert_ledger,
}
CLOSED: dict[str, Callable[[Project], None]] = {
    "web": assert_visits_ended,
    "buses": assert_silences,
    "ledger": assert_ledger_ended,
}
EACH = 20_000  # records of a system


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def project(
    tmp_path: Path,
    broker: str,
    spark: SparkSession,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    systems: tuple[str, ...],
) -> Project:
    root, postgres = tmp_path / "project", warehouse(server, monkeypatch)
    project = Project(root, *systems, broker=broker, faults=FAULTS, postgres=postgres)
    if "ledger" in systems:
        server.rows(merchants(project.of("ledger").generator))
    view = project.root / "gold" / "bus_positions.sql"
    if view.exists():
        view.write_text(view.read_text().replace("'30s'", "'1s'"))
    return project


@pytest.mark.parametrize(
    ("systems", "kills"),
    [
        pytest.param(tuple(FLOWS)[:-1], 0, id="together"),
        pytest.param(("ledger",), 0, id="ledger-drained", marks=pytest.mark.torture),
        pytest.param(tuple(FLOWS), 1, id="together-killed", marks=pytest.mark.torture),
        *(pytest.param((name,), 10, id=name, marks=pytest.mark.torture) for name in FLOWS),
    ],
)
def test_equal_the_oracle_after_kills(
    project: Project, server: Server, systems: tuple[str, ...], kills: int
) -> None:
    draw = random.Random(SEED)
    flows = [flow for system in systems for flow in FLOWS[system]]
    if not kills:
        project.produce(EACH * len(systems))
    for number in range(kills):
        project.produce(EACH // min(kills, 2) * len(systems))
        with project.run() as run:
            run.batch(draw.choice(flows))
            if number % 2:
                project.produce(1_000)
                run.batch(draw.choice(flows))
            run.kill(signal.SIGKILL)
            run.wait()
    project.once()
    for system in systems:
        records = project.of(system).records
        assert len(records) >= EACH, system
        OPEN[system](project.of(system))
    again = {batch["flow"] for batch in project.once()}
    assert again <= {SILENT}, "a view of the clock alone has another batch when nothing came"
    if "web" in systems:
        assert_postgres(project, server)
    if "sales" in systems:
        commits = list(changes(project, "gold.top_sellers"))
        assert commits and max(commits) <= 2 * 20  # old and new rows of ten places at most
    ended = [system for system in systems if system in CLOSED]
    if ended:
        project.once(close=True)
        for system in ended:
            CLOSED[system](project.of(system))
    if "ledger" in systems:
        ledger = project.of("ledger")
        assert_sent(ledger, server)
        ledger.again()
        project.once(close=True)
        for same in (OPEN["ledger"], CLOSED["ledger"]):
            same(ledger)
        assert_sent(ledger, server)
    if "buses" in systems:
        assert_silent(project.of("buses"))


@pytest.mark.parametrize("systems", [("ledger",)])
def test_without_its_lookup_a_table_waits_and_others_go_on(project: Project, server: Server) -> None:
    events = FLOWS["ledger"][0]
    server.stop()
    project.produce(3_000)
    with project.live() as run:
        run.until(lambda: "asks PostgreSQL for ledger.merchants" in run.said(), f"{events} waits")
        run.until(lambda: project.rows("silver.accounts", "1"), "a batch of the accounts")
        assert not project.rows(events, "1")
        server.start()
        run.until(lambda: project.rows(events, "1"), f"{events} goes on")
    project.once()
    assert_ledger(project)


def assert_postgres(project: Project, server: Server) -> None:
    """The visits in PostgreSQL are those of the lake."""
    columns = "user_id, {} session_start{}, {} session_end{}, views"
    want = once_each("visits", project.rows(SESSIONS, columns.format("epoch_ms(", ")", "epoch_ms(", ")")), 2)
    ours = columns.format(*("(1000 * extract(epoch FROM ", "))::bigint") * 2)
    got = once_each("postgres", server.rows(f"SELECT {ours} FROM web.sessions"), 2)
    assert_same("visits in PostgreSQL", want, got)


def changes(project: Project, table: str) -> list[int]:
    """How many rows each version of a table has in its change feed."""
    place = Lake(project.conf.lake).places()[table]
    commits = log.commits(place.path, after=0, upto=log.head(place.path))
    return [sum(max(file.rows, 0) for file in commit.changes) for commit in commits]


def assert_silent(project: Project) -> None:
    """A bus that reports is silent no more, and is again two minutes later; `status` says where all are."""
    last = {bus: p.reported_at for bus, p in project.generator.bus_positions(project.records).items()}
    silent = dict(project.rows(SILENT, "bus_id, epoch_ms(reported_at)"))
    assert silent == last  # their reports are of last winter

    bus, other = sorted(last)[:2]
    with project.live() as run:
        report(project, bus, time.time())
        report(project, other, time.time() - 117)
        gone = lambda: {bus, other} - {row[0] for row in project.rows(SILENT, "bus_id")}  # noqa: E731
        run.until(lambda: bus in gone(), f"{bus} is not silent any more")
        found = json.loads(project.headwater("status", "--json"))
        assert {one["writer"] for one in found if one["table"] in FLOWS["buses"][:2]} == {run.pid}
        run.until(lambda: bus in gone() and other not in gone(), f"{other} is silent again")
    project.once()
    assert_buses(project)
    standings = {one["table"]: one for one in json.loads(project.headwater("status", "--json"))}
    assert all(one["writer"] is None and one["committed"] for one in standings.values())
    behind = {name: one["behind"] for name, one in standings.items()}
    views = [name for name, rows in behind.items() if rows is None]
    assert {POSITIONS, SILENT} <= set(views)
    assert behind == {**dict.fromkeys(behind, 0), **dict.fromkeys(views)}
    silences = standings["gold.bus_silences"]
    assert silences["watermark"] and standings[REPORTS]["keys"] == len(last)


def report(project: Project, bus: str, at: float) -> None:
    """One more report of a bus."""
    route, stops = next(iter(project.generator.STOPS.items()))
    fields = {"bus_id": bus, "route_id": route, "lat": stops[0].lat, "lon": stops[0].lon}
    value = json.dumps({**fields, "reported_at": int(at * 1000)}).encode()
    record = Record(project.topic("bus-positions"), bus.encode(), value, 0, None, None)
    producer = Producer(project.client())
    producer.produce(record.topic, value, record.key, record.partition)
    assert producer.flush(30) == 0
    project.records.append(record)
