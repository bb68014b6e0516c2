"""A project that is maintained, by its run or a command: its rows are what they would be without."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, DERIVED, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater import query
from headwater.flows import marks, publish
from headwater.flows.declared import flow_of
from headwater.operations import maintain, rebuild, savepoints
from headwater.operations.maintain import Maintained
from headwater.operations.maintain.horizon import holds
from headwater.operations.rebuild.build import Builder
from headwater.operations.rebuild.reconcile import reconcile
from headwater.operations.savepoints import copies
from headwater.run.maintenance import Upkeep
from headwater.runtime import failpoints
from headwater.storage import delta, log, mailbox
from headwater.storage.lake import Lake

NOW = "kafka: embedded\nmaintain: {keep: 0s, every: 1s}\n"
SINK = '''import headwater as hw
from headwater.connectors.sinks import Sink
class Nowhere(Sink):
    """Keeps nothing."""
    def open(self, table): return None
    def write(self, changes): pass
    def close(self): pass
nowhere = hw.sink("silver.visits", Nowhere, name="nowhere")
'''


class Live:
    """The flows of a project as a run has them, stepped by a test."""

    def __init__(self, case: Visits) -> None:
        self.case, self.context = case, case.once()
        self.flows: dict[str, Any] = {name: flow_of(self.context, name) for name in DERIVED}
        self.upkeep = Upkeep(self.context, self.flows)

    def step(self, *names: str) -> None:
        for name in names or DERIVED:
            while self.flows[name].step():
                self.flows[name].committer.checkpoint()

    def checkpoint(self) -> None:
        """As if many commits had been made: only what is older than a checkpoint can be forgotten."""
        for place in self.case.lake.places().values():
            DeltaTable(place.path).create_checkpoint()

    def maintain(self) -> dict[str, Maintained]:
        """Maintain all tables by another process's hand: none of these flows may go on after it."""
        return {one.table: one for one in maintain.maintain(self.case.definitions)}


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path / "project", interpreted)
    case.write({"conf/local.yaml": NOW})
    return case


def test_what_is_being_copied_stays_however_long_that_takes(
    case: Visits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    live, draw, done = Live(case), random.Random(6), dict[str, Maintained]()

    def batches(count: int) -> None:
        for _ in range(count):
            case.visit(draw, 10)
            live.step()
        live.checkpoint()

    def meanwhile(step: str, flow: str) -> None:
        if (step, flow) == ("chosen", "copy"):
            batches(3)
            done.update(live.maintain())

    def rows(lake: Lake, version: int | None = None) -> dict[str, set[str]]:
        tables = {name: delta.opened(place.path, version) for name, place in lake.places().items()}
        return {name: {*map(str, t.to_pyarrow_table().to_pylist())} for name, t in tables.items()}

    batches(3)
    before = rows(case.lake)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", meanwhile)
        copies.copy(case.definitions, tmp_path / "copy", full=True)
    assert rows(Lake(tmp_path / "copy")) == before
    assert {(one.commits, one.held) for one in done.values()} == {(0, maintain.KEEPER)}
    assert rows(Lake(tmp_path / "copy"), 1).keys() == before.keys()  # the past is whole, too
    live = Live(case)
    assert all(one.commits and not one.held for one in live.maintain().values())


def test_what_is_maintained_has_the_rows_that_it_would_have(case: Visits) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for turn in range(2):
        live = Live(case)
        for _ in range(5):
            case.visit(draw, 10)
            if draw.random() < 0.7:
                live.step()
        live.step()
        live.checkpoint()
        done = live.maintain()
        assert done[VISITS].held == "" and (turn == 0 or done[VISITS].commits > 0)
    want = of_new_lake(case)
    assert case.everything() == want
    places = case.lake.places()
    assert all(log.first(places[name].path) > 0 for name in (RAW, *DERIVED))
    assert sum(1 for _ in places[VISITS].path.rglob("part-*.parquet")) < 30
    oldest = str(log.first(places[VISITS].path))
    counts = [
        query.run(f"SELECT count(*) FROM {VISITS}", project=case.root, engine=engine, at=at).rows
        for engine in ("duckdb", "spark")
        for at in (oldest, None)
    ]
    assert counts[:2] == counts[2:] and counts[1] == [(len(want[VISITS]),)]
    # what begins now, begins with a snapshot
    assert not any(case.rebuild(VISITS, verify=True).differences)
    assert case.everything() == want
    case.visit(draw)
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_the_slowest_reader_holds_the_past_and_is_named(case: Visits) -> None:
    draw, live = random.Random(1), Live(case)
    for turn in range(6):
        case.visit(draw, 10)
        live.step(*(DERIVED if turn < 3 else (VISITS, COUNTS, TOP)))  # its finals stay behind
    live.checkpoint()
    done = live.maintain()
    assert done[VISITS].held == ENDED and done[VISITS].commits == 0
    assert done[RAW].held == ENDED  # how far event time has come is looked up along its way
    assert done[COUNTS].held == "" and done[COUNTS].commits > 0
    case.drain()
    live.checkpoint()
    assert live.maintain()[VISITS].commits > 0
    assert case.everything() == of_new_lake(case)


def test_how_often_a_log_has_a_checkpoint_is_a_setting(case: Visits) -> None:
    case.visit(random.Random(3))
    case.drain()
    marks = lambda: [p.name for p in case.bronze.place.path.glob("_delta_log/*.checkpoint.parquet")]  # noqa: E731
    maintain.maintain(case.definitions)
    assert marks() == []
    case.write({"conf/local.yaml": "kafka: embedded\nmaintain: {checkpoint: 1}\n"})
    maintain.maintain(case.definitions)
    assert len(marks()) == 1


def test_a_sink_and_a_rebuild_hold_the_past(case: Visits) -> None:
    case.write({"gold/sink.py": SINK})
    draw, live = random.Random(2), Live(case)
    for _ in range(4):
        case.visit(draw, 10)
        live.step()
    project = case.definitions
    (sink,) = project.sinks
    assert publish.PublishFlow(live.context, project.sinks[sink])._step()
    at = marks.sent(case.lake, sink).at

    def held(who: str) -> int:
        return {(hold.table, hold.who): hold.version for hold in holds(project, case.lake)}[VISITS, who]

    case.visit(draw, 10)
    live.step()
    assert held(f"the sink {sink}") == at.version < held(COUNTS)
    case.rebuild(COUNTS, swap=False)
    case.visit(draw, 10)
    live.step()
    assert at.version < held(f"the rebuild of {COUNTS}") < held(COUNTS)
    live.checkpoint()
    assert live.maintain()[VISITS].held == f"the sink {sink}"
    rebuild.abort(project)


def test_a_reconcile_holds_what_it_compares_while_it_is_at_work(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, live = random.Random(8), Live(case)
    for _ in range(4):
        case.visit(draw, 10)
        live.step()
    began = {name: log.head(case.lake.place(name).path) for name in (VISITS, COUNTS)}
    found: dict[str, Any] = {}

    def build(self: Builder, bounds: Any) -> float:
        case.visit(draw, 10)
        live.step()
        live.checkpoint()
        found.update(live.maintain())
        return built(self, bounds)

    built = Builder.__call__
    monkeypatch.setattr(Builder, "__call__", build)
    (compared,) = reconcile(case.definitions, [COUNTS])
    assert compared.same and compared.version == began[COUNTS]
    assert {found[name].held for name in began} == {f"the reconcile of {COUNTS}"}
    assert not any("reconcile" in hold.who for hold in holds(case.definitions, case.lake))


def test_a_savepoint_holds_what_it_would_go_on_from_and_comes_back_whole(case: Visits) -> None:
    draw, live = random.Random(4), Live(case)
    for _ in range(4):
        case.visit(draw, 10)
        live.step()
    live.checkpoint()
    live.maintain()
    assert log.first(case.lake.place(RAW).path) > 0
    savepoints.create(case.definitions, "before")
    saved, live = case.everything(), Live(case)
    for _ in range(4):
        case.visit(draw, 10)
        live.step()
    live.checkpoint()
    done = live.maintain()
    assert done[RAW].held == "the savepoint before" and done[VISITS].held == ""
    want = case.everything()
    savepoints.restore(case.definitions, "before")
    assert case.everything() == saved != want
    case.drain()
    assert case.everything() == want == of_new_lake(case)


def test_a_savepoint_of_a_table_that_is_part_way_through_a_snapshot(case: Visits) -> None:
    draw = random.Random(6)
    for _ in range(4):
        case.visit(draw, 10)
    raw = case.lake.place(RAW).path
    DeltaTable(raw).create_checkpoint()
    maintain.maintain(case.definitions)  # before there is a table that would read what goes
    live = Live(case)
    live.checkpoint()
    start = log.head(raw)
    assert 0 < log.first(raw) < start
    case.write({"conf/local.yaml": f"{NOW}max_rows_per_batch: 10\n"})
    assert Live(case).flows[VISITS].step()
    at = log.flows(case.lake.place(VISITS).path)[VISITS]["consumed"][RAW]
    assert (at["version"], at["files"], at["snapshot"]) == (-1, 1, start)
    savepoints.create(case.definitions, "begun")
    case.visit(draw, 10)
    case.drain()
    live.checkpoint()
    live.maintain()
    held = {hold.who: hold.version for hold in holds(case.definitions, case.lake) if hold.table == RAW}
    assert held["the savepoint begun"] == start == log.first(raw)
    want = case.everything()
    savepoints.restore(case.definitions, "begun")
    assert case.everything() != want
    case.drain()
    assert case.everything() == want


def test_a_run_maintains_its_tables_between_batches(case: Visits) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    case.write({"conf/local.yaml": "kafka: embedded\nmaintain: {keep: 0s, every: 1s, checkpoint: 3}\n"})
    draw, live = random.Random(seed), Live(case)
    keeper = threading.Thread(target=live.upkeep.run, daemon=True)
    keeper.start()
    deadline = time.monotonic() + 180
    try:
        while log.first(case.lake.place(COUNTS).path) == 0:
            case.visit(draw, 5)
            live.step()
            assert time.monotonic() < deadline
    finally:
        live.context.stop.set()
        keeper.join(60)
    assert case.everything() == of_new_lake(case)


def test_a_run_maintains_what_its_flows_have_not_opened(case: Visits) -> None:
    draw = random.Random(5)
    case.visit(draw)
    case.drain()
    quarantine = "quarantine.silver_visits"
    policy = f"{{keep: 0s, every: 1s, tables: {{{quarantine}: {{retention: 1ms}}}}}}"
    case.write({"conf/local.yaml": f"kafka: embedded\nmaintain: {policy}\n"})
    live = Live(case)
    assert quarantine not in [each.place.name for each in live.flows[VISITS].committer.targets()]
    live.upkeep.step()
    assert case.everything()[quarantine] == []


def test_maintenance_for_a_flow_that_another_has_replaced_stops_neither(case: Visits) -> None:
    draw, live = random.Random(6), Live(case)
    case.visit(draw)
    live.step()
    before, again = live.flows[VISITS], flow_of(live.context, VISITS)
    for turn in range(3):  # as when it is at it while the flow begins anew after a fault that passes
        before.committer.table.keep(timedelta(seconds=turn))
        case.visit(draw)
        live.flows[VISITS] = again
        live.step()
        live.upkeep.step()
    assert case.everything() == of_new_lake(case)


def test_a_reader_that_can_not_read_on_keeps_no_other_from_being_maintained(case: Visits) -> None:
    draw, counts = random.Random(5), case.root / "gold/counts.sql"
    text, top = counts.read_text(), (case.root / "gold/top.sql").read_text()
    for turn in range(4):
        case.visit(draw, 10)
        case.drain(*(DERIVED if turn < 2 else (VISITS,)))
        if turn == 1:
            for file in ("counts", "top", "ended"):
                (case.root / f"gold/{file}.sql").unlink()
    for place in case.lake.places().values():
        DeltaTable(place.path).create_checkpoint()
    maintain.maintain(case.definitions)
    before = log.first(case.lake.places()[VISITS].path)
    assert before > 2
    case.write({"gold/counts.sql": text, "gold/top.sql": top})
    for _ in range(3):
        case.visit(draw, 10)
        case.drain(VISITS)
    for place in case.lake.places().values():
        DeltaTable(place.path).create_checkpoint()
    done = {one.table: one for one in maintain.maintain(case.definitions)}
    assert done[VISITS].held == "" and done[VISITS].first > before
    with raises_code("LOG_SHORTENED"):
        case.drain(COUNTS)


def test_maintenance_goes_on_after_a_look_that_failed(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    live, looks, real = Live(case), list[str](), mailbox.take

    def taken(folder: Path, kind: str = "requests") -> Any:
        looks.append(kind)
        if len(looks) < 3:
            raise OSError(28, "No space left on device", f"{folder}/{len(looks)}.answer")
        live.context.stop.set()
        return real(folder, kind)

    monkeypatch.setattr(mailbox, "take", taken)
    notices = list[str]()
    monkeypatch.setattr(live.context.board, "say_once", lambda what, why: notices.append(f"{what}: {why}"))
    live.upkeep.run()
    assert len(looks) > 2 and "No space left" in notices[0] and len(notices) == 2


def test_what_cannot_be_is_refused(case: Visits) -> None:
    with raises_code("UNKNOWN_TABLE", table="gold.nothing"):
        maintain.maintain(case.definitions, ["gold.nothing"])
    case.write({"conf/local.yaml": "maintain: {keep: for ever}\n"})
    with raises_code("CONF_INVALID", match=r"key 'maintain\.keep': .*'for ever' is no span of time"):
        case.restart()
    case.write({"conf/local.yaml": "maintain: {tables: {gold.top: {keep: 1d, kept: 1d}}}\n"})
    with raises_code("CONF_INVALID", match=r"unknown key 'maintain\.tables\.gold\.top\.kept'; known: keep"):
        case.restart()
