"""Savepoints are consistent, however batches are being committed, and come back as they were."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner
from visits import COUNTS, DERIVED, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater.cli import app
from headwater.flows.context import Moved
from headwater.flows.declared import flow_of
from headwater.operations import rebuild, savepoints
from headwater.operations.savepoints import cut as cuts
from headwater.runtime import failpoints
from headwater.storage import delta, log
from headwater.storage.lake import Lake
from headwater.storage.mailbox import Request
from headwater.storage.names import beside
from headwater.storage.ranges import Position
from headwater.testing import Rows

BOTH, RUNS = "gold.both", "gold.runs"
NAMES = (*DERIVED, BOTH, RUNS)
MORE = {
    "gold/both.sql": "CREATE STREAMING TABLE gold.both",
    "gold/few.sql": """CREATE FLOW gold.few AS INSERT INTO gold.both BY NAME
        SELECT user, n FROM STREAM silver.visits WHERE n < 4""",
    "gold/many.sql": """CREATE FLOW gold.many AS INSERT INTO gold.both BY NAME
        SELECT user, n FROM STREAM silver.visits WHERE n >= 4""",
    "gold/runs.py": '''import headwater as hw
@hw.process(source="silver.visits", keys=["user"], event_time="event_time", delay="10 seconds",
            columns="user STRING, at TIMESTAMP, visits BIGINT", state="visits BIGINT")
def runs(row, user):
    """How many visits each user has made by then."""
    user.state = {"visits": (user.state or {"visits": 0})["visits"] + 1}
    yield {"user": row["user"], "at": user.now, **user.state}
''',
}


class Lakes(Visits):
    """The project of the rebuild's tests with a table of two flows, and a process."""

    def drain(self, *names: str) -> None:
        super().drain(*(names or NAMES))

    def everything(self) -> dict[str, Rows]:
        tables = [each for name in NAMES for each in (name, *beside(name)) if "__resolved" not in each]
        return {name: self.rows(name) for name in tables if name in self.lake.places()}

    def flows(self) -> dict[str, Any]:
        """The flows of a run that is at work."""
        self.restart()
        return {name: self.flow(name, once=True) for name in NAMES}

    def restore(self, name: str) -> dict[str, int]:
        return savepoints.restore(self.definitions, name)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Lakes:
    case = Lakes(tmp_path_factory.mktemp("savepoint") / "project", interpreted, MORE)
    draw = random.Random(3)
    for _ in range(3):
        case.visit(draw)
    case.drain()
    return case


@contextmanager
def broken_off(monkeypatch: pytest.MonkeyPatch, step: str, flow: str, count: int = 1) -> Iterator[None]:
    """A kill at the count-th time that a step is reached, as far as the process can see it."""
    left = [count]

    def reach(at: str, of: str) -> None:
        left[0] -= (at, of) == (step, flow)
        if left[0] == 0 and (at, of) == (step, flow):
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with pytest.raises(SystemExit):
            yield


def assert_consistent(project: Any, cut: cuts.Cut) -> None:
    """No table has read more of another than there is of it, and nothing beside a table is ahead of it."""
    for name, chosen in cut.items():
        for identity in chosen.commit.flows.values():
            for source, at in identity["consumed"].items():
                if source in project.names():
                    position = Position.parse(at)
                    assert position.generation == cut[source].place.generation
                    assert position.version + (position.files > 0) <= cut[source].version, (name, source)
        for other in beside(name).keys() & cut.keys():
            for flow in cut[other].commit.flows:
                ours, theirs = (log.last(each.commit.flows, flow) for each in (chosen, cut[other]))
                assert theirs <= ours, (name, other)


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.torture)])
def test_savepoints_made_while_batches_are_committed_are_consistent(case: Lakes, count: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, flows, made, errors = random.Random(seed), case.flows(), [], []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                case.visit(draw, 15)
                for _ in range(6):
                    flows[draw.choice(NAMES)].step()
        except Exception as e:
            errors.append(e)

    worker = threading.Thread(target=work)
    worker.start()
    advanced = lambda: made[-1].tables[VISITS].version > made[0].tables[VISITS].version  # noqa: E731
    while (len(made) < count or not advanced()) and worker.is_alive():
        assert_consistent(case.definitions, cuts.choose(case.definitions, case.lake))
        made.append(savepoints.create(case.definitions, f"live{count}-{len(made)}"))
    stop.set()
    worker.join()
    assert not errors
    heads = {name: log.head(place.path) for name, place in case.lake.places().items()}
    assert advanced()  # it was at work
    for one in made:
        saved = Lake(case.lake.root / "_savepoints" / one.name)
        assert {name: log.head(place.path) for name, place in saved.places().items()} == {
            name: held.version for name, held in one.tables.items()
        }
        assert all(held.version <= heads[name] for name, held in one.tables.items())
    chosen = draw.choice(made)
    print(f"restored {chosen.name}")
    case.restore(chosen.name)
    assert {name: held.rows for name, held in chosen.tables.items()} == {
        name: len(case.rows(name)) for name in chosen.tables
    }
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_half_a_batch_is_in_no_savepoint(case: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    flows, draw = case.flows(), random.Random(11)
    case.visit(draw)
    flows[VISITS].step()
    case.visit(draw)
    for name in (VISITS, ENDED, RUNS):
        with broken_off(monkeypatch, "committing", name):  # a table beside it has it, the table not
            flows[name].step()
    heads = {name: log.head(place.path) for name, place in case.lake.places().items()}
    made = savepoints.create(case.definitions, "half")
    behind = {name for name, held in made.tables.items() if held.version < heads[name]}
    assert "quarantine.silver_visits" in behind and not behind & set(NAMES)
    assert all(behind & {f"{name}__state", f"{name}_late"} for name in (ENDED, RUNS))
    case.drain()  # commits the other half
    case.restore("half")
    assert_consistent(case.definitions, cuts.choose(case.definitions, case.lake))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_half_a_replay_is_in_no_savepoint(case: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = f"quarantine.{VISITS.replace('.', '_')}__resolved"
    flow = case.flows()[VISITS]
    request = Request("discard", None, "broken", case.definitions.digest)
    with broken_off(monkeypatch, "committing", f"{VISITS}.replay"):
        flow.resolve(request)
    place = case.lake.place(resolved)
    made = savepoints.create(case.definitions, "replayed")
    assert made.tables[resolved].rows == 0 and log.head(place.path) > made.tables[resolved].version
    discarded = flow.resolve(request).discarded
    assert len(case.rows(resolved)) > discarded  # with those that were staged
    case.restore("replayed")
    assert not case.rows(resolved)
    assert case.flows()[VISITS].resolve(request).discarded > 0  # open again


def test_what_was_spoilt_comes_back_and_goes_on(case: Lakes) -> None:
    before, places = case.everything(), case.lake.places()
    made = savepoints.create(case.definitions, "good")
    assert made.rows == sum(len(case.rows(name)) for name in made.tables)
    assert made.bronze[RAW].offsets == {"raw": {"0": case.sent}}
    case.visit(random.Random(21))
    case.drain()
    for file in DeltaTable(places[COUNTS].path).file_uris():
        Path(file).unlink()
    shutil.rmtree(places[VISITS].path)
    wrong = pa.Table.from_pylist([], pa.schema(DeltaTable(places[TOP].path).schema().to_arrow()))
    write_deltalake(places[TOP].path, wrong, mode="overwrite")
    assert case.rows(TOP) == []
    generations = case.restore("good")
    assert case.everything() == before
    assert {
        name: place.generation for name, place in case.lake.places().items() if name != RAW
    } == generations
    assert case.lake.place(RAW) == places[RAW]
    case.drain()
    assert case.everything() == of_new_lake(case) != before


def test_a_definition_that_filled_a_table_wrongly_is_undone(case: Lakes) -> None:
    before = case.everything()
    savepoints.create(case.definitions, "before-the-change")
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    case.rebuild(COUNTS)
    assert case.everything() != before
    case.restore("before-the-change")
    assert case.everything() == before
    with raises_code(
        "DEFINITION_CHANGED", table="gold.counts", match=r"gold\.counts can't go on as it was changed"
    ):
        case.drain()
    case.change("gold/counts.sql", "max(n) AS total", "sum(n) AS total")
    case.drain()
    assert case.everything() == before


@pytest.mark.parametrize("step", ["chosen", "made"])
def test_a_savepoint_that_was_broken_off_does_not_count(
    case: Lakes, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    left = case.lake.root / "_savepoints" / ".cut.part"
    for again in (False, True):
        with broken_off(monkeypatch, step, "savepoint"):
            savepoints.create(case.definitions, "cut")
        assert left.is_dir() and "cut" not in [one.name for one in savepoints.all_of(case.lake)]
        with raises_code("UNKNOWN_SAVEPOINT"):
            case.restore("cut")
        if again:
            savepoints.drop(case.lake, "cut")
        else:
            assert savepoints.create(case.definitions, "cut").tables
            savepoints.drop(case.lake, "cut")
        assert not left.exists() and not left.with_name("cut").exists()


def test_a_restore_that_was_broken_off_is_done_again(case: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    savepoints.create(case.definitions, "again")
    kept = case.everything()
    case.visit(random.Random(41))
    case.drain()
    before, places = case.everything(), case.lake.places()
    for step in ("planned", "made"):
        with broken_off(monkeypatch, step, "restore"):
            case.restore("again")
        assert case.everything() == before and case.lake.places() == places
        with raises_code("RESTORE_UNDER_WAY"):
            case.rebuild(COUNTS)
    with broken_off(monkeypatch, "swapped", "restore"):
        case.restore("again")
    assert case.everything() == kept
    case.restore("again")
    assert case.everything() == kept
    assert not (case.lake.root / "_rebuild.json").exists()
    case.drain()
    assert case.everything() == before


def test_a_rebuild_clears_away_what_a_killed_restore_left(
    case: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoints.create(case.definitions, "aborted")
    before = {path.name for path in case.lake.at(VISITS, 1).parent.iterdir()}
    with broken_off(monkeypatch, "made", "restore"):
        case.restore("aborted")
    assert {path.name for path in case.lake.at(VISITS, 1).parent.iterdir()} > before
    assert set(rebuild.abort(case.definitions)) == set(NAMES)
    assert {path.name for path in case.lake.at(VISITS, 1).parent.iterdir()} == before


def test_a_flow_at_work_gives_way_and_tables_made_since_begin_anew(case: Lakes) -> None:
    case.lake.swap({}, without=[BOTH])  # as if it had not been made yet
    savepoints.create(case.definitions, "early")
    case.drain()
    before, id = case.everything(), case.lake.place(BOTH).id
    context = case.once()
    flow: Any = flow_of(context, COUNTS)
    case.restore("early")
    with pytest.raises(Moved):
        context.check(COUNTS)
    assert case.rows(BOTH) == [] and case.lake.place(BOTH).id == id
    case.visit(random.Random(51))
    case.drain(VISITS)
    assert not flow.step()  # its input is another one now
    again: Any = flow_of(context, COUNTS)
    assert again.step()
    case.drain()
    assert case.everything() == of_new_lake(case) != before


def test_a_flow_that_is_overtaken_writes_nothing_into_the_next_generation(case: Lakes) -> None:
    quarantine = "quarantine.silver_visits"
    savepoints.create(case.definitions, "whole")
    case.lake.swap({}, without=[quarantine])  # as if nothing had been quarantined yet
    savepoints.create(case.definitions, "clean")
    flow = case.flows()[VISITS]
    case.restore("clean")
    case.visit(random.Random(61), 80)
    with pytest.raises(Moved):
        flow.step()
    assert log.head(case.lake.place(quarantine).path) == 0
    case.drain()
    (by,) = log.flows(case.lake.place(quarantine).path).values()
    assert by["generation"] == case.lake.place(VISITS).generation and case.rows(quarantine)
    case.restore("whole")
    case.drain()


def test_a_savepoint_outlives_what_it_was_made_of(case: Lakes) -> None:
    savepoints.create(case.definitions, "kept")
    before, made_of = case.everything(), case.lake.place(VISITS).path
    case.restore("kept")
    assert rebuild.clean(case.definitions) >= len(NAMES) and not made_of.exists()
    case.restore("kept")
    assert case.everything() == before


def test_what_can_not_be_done_is_said(case: Lakes) -> None:
    project = case.definitions
    for name in ("", ".hidden", "a/b", "..", "x" * 65):
        with raises_code("SAVEPOINT_NAME_INVALID"):
            savepoints.create(project, name)
    savepoints.create(project, "once")
    with raises_code("SAVEPOINT_EXISTS"):
        savepoints.create(project, "once")
    with raises_code("UNKNOWN_SAVEPOINT"):
        savepoints.drop(case.lake, "nope")
    assert not case.rebuild(COUNTS, swap=False).swapped
    with raises_code(
        "REBUILD_UNDER_WAY", match=r"a rebuild of gold\.counts, gold\.top is under way; end that"
    ):
        case.restore("once")
    rebuild.abort(project)
    raw = case.lake.place(RAW)
    case.lake.swap({RAW: raw.__class__(RAW, 1, raw.path, "another")})
    with raises_code(
        "RESTORE_NOT_POSSIBLE",
        table="bronze.raw",
        match=r"has read bronze\.raw up to version .* was started anew since",
    ):
        case.restore("once")
    case.lake.swap({RAW: raw})
    newest = raw.path / "_delta_log" / f"{log.head(raw.path):020d}.json"
    newest.rename(newest.with_suffix(".aside"))
    with raises_code("RESTORE_NOT_POSSIBLE", match="restore that table's files first"):
        case.restore("once")
    newest.with_suffix(".aside").rename(newest)
    case.restore("once")


def test_the_command_line_has_all_of_it(case: Lakes) -> None:
    run = CliRunner()

    def said(*arguments: str) -> str:
        done = run.invoke(app, ["savepoint", *arguments, "--project", str(case.root)])
        assert done.exit_code == 0, done.output
        return done.output

    assert said("create", "by-hand").startswith("by-hand: ")
    rows = sum(len(case.rows(name)) for name in case.lake.places() if name != RAW)
    (line,) = [line for line in said("ls").splitlines() if line.startswith("by-hand")]
    assert f" {rows:,} " in line
    listed = {one["name"]: one for one in json.loads(said("ls", "--json"))}
    assert listed["by-hand"]["bronze"][RAW]["offsets"] == {"raw": {"0": case.sent}}
    generation = case.lake.place(VISITS).generation + 1
    assert f"{VISITS} is generation {generation} now" in said("restore", "by-hand").splitlines()
    assert said("drop", "by-hand") == "removed savepoint by-hand\n"
    assert "by-hand" not in said("ls")


def test_a_savepoint_that_could_not_go_on_is_none(case: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took so long that what it would go on from is gone. It is the last one: bronze has lost its past."""
    draw = random.Random(17)
    case.visit(draw)
    case.drain()

    def reach(step: str, flow: str) -> None:
        if (step, flow) == ("chosen", "savepoint"):
            for _ in range(2):
                case.visit(draw)
            case.drain()
            DeltaTable(case.bronze.place.path).create_checkpoint()
            head = log.head(case.bronze.place.path)
            for version in range(log.first(case.bronze.place.path), head):
                delta.entry(case.bronze.place.path, version).unlink()

    kept = tuple(one.name for one in savepoints.all_of(case.lake))
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with raises_code(
            "RESTORE_NOT_POSSIBLE", table=RAW, match="would go on from .* which its log has no more"
        ):
            savepoints.create(case.definitions, "slow")
    assert tuple(one.name for one in savepoints.all_of(case.lake)) == kept
    savepoints.create(case.definitions, "quick")
