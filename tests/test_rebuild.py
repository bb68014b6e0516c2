"""Tables are built anew beside the live ones and swapped in one commit, whatever is killed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, DERIVED, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater.common.progress import Board
from headwater.errors import FlowError
from headwater.flows.context import Moved
from headwater.flows.declared import Committing, flow_of
from headwater.operations import rebuild as rebuilding
from headwater.operations.maintain.clean import clean as forgotten
from headwater.operations.maintain.horizon import holds
from headwater.operations.rebuild import abort, clean, planning
from headwater.operations.rebuild.shadow import Plan, Shadow
from headwater.query.inspect import status
from headwater.run.leases import Leases
from headwater.run.supervisor import Options, Run
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lease import Lease
from headwater.storage.target import Target

STEPS = ("planned", "committed", "rebuilt")


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("rebuild"), interpreted)
    draw = random.Random(3)
    for _ in range(4):
        case.visit(draw)
    case.drain()
    return case


@pytest.fixture
def case(drained: Visits, tmp_path: Path) -> Visits:
    return drained.copied(tmp_path / "project")


def test_unchanged_definitions_give_the_same_rows(case: Visits) -> None:
    before = case.everything()
    versions = {name: place.generation for name, place in case.lake.places().items()}
    assert set(versions.values()) == {1}
    done = case.rebuild(VISITS, verify=True)
    assert done.swapped and not any(done.differences), done.differences
    beside = {"quarantine.silver_visits", f"{ENDED}_late", f"{ENDED}__state"}
    assert {one.table for one in done.differences} == {*DERIVED, *beside}
    assert {one.table: one.before for one in done.differences} == {name: len(before[name]) for name in before}
    assert case.everything() == before
    places = case.lake.places()
    assert {name: place.generation for name, place in places.items()} == {
        **dict.fromkeys(places, 2),
        RAW: 1,
    }
    case.visit(random.Random(4))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_changed_definitions_take_the_place_of_all_below_at_once(case: Visits) -> None:
    case.change("silver/visits.py", "n >= 0", "n >= 3")
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    case.change("gold/ended.sql", "'1 minute'", "'2 minutes'")
    before = case.everything()
    done = case.rebuild(VISITS, verify=True)
    assert not done.swapped and case.everything() == before  # for a person to look at
    assert {one.table for one in done.differences if one} == {*DERIVED, f"{ENDED}_late", f"{ENDED}__state"}
    assert case.rebuild(VISITS).swapped
    assert case.everything() == of_new_lake(case) != before
    case.visit(random.Random(5))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_generations_that_are_not_live_are_removed_on_demand(case: Visits) -> None:
    case.rebuild(COUNTS)
    before = case.everything()
    folders = lambda: sorted(path.name for path in case.lake.at(COUNTS, 1).parent.iterdir())  # noqa: E731
    assert folders() == ["g0001", "g0002"]
    assert not case.rebuild(COUNTS, swap=False).swapped
    assert clean(case.definitions) == 2  # of gold.counts and gold.top
    assert folders() == ["g0002", "g0003"]
    assert case.everything() == before
    assert case.rebuild(COUNTS).swapped
    assert case.everything() == before


def test_only_what_is_named_and_below_is_rebuilt(case: Visits) -> None:
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    assert set(case.rebuild(COUNTS).tables) == {COUNTS, TOP}
    generations = {name: place.generation for name, place in case.lake.places().items()}
    assert generations[COUNTS] == generations[TOP] == 2
    assert generations[VISITS] == generations[ENDED] == 1
    assert case.everything() == of_new_lake(case)


def test_a_rebuild_that_ends_while_another_is_planned_is_what_that_one_builds_on(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, real = list[str](), planning.history_of

    def meanwhile(*args: Any) -> Any:
        if not others:
            others.append(VISITS)
            rebuilding.rebuild(case.definitions, others)
        return real(*args)

    monkeypatch.setattr(planning, "history_of", meanwhile)
    done = rebuilding.rebuild(case.definitions, [COUNTS])
    assert done.swapped and done.tables[COUNTS] == case.lake.place(COUNTS).generation == 3
    case.visit(random.Random(9))
    case.drain(*DERIVED)
    assert case.everything() == of_new_lake(case)


def test_what_is_removed_before_a_plan_is_known_is_not_compared_with(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = planning.generations

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(planning, "generations", real)
        case.visit(random.Random(9))
        case.drain(*DERIVED)
        table = Target(case.lake.place(COUNTS))
        table.checkpoint(1)
        forgotten(table.place.path, upto=table.version, before=datetime.now(UTC))
        assert log.first(table.place.path) == table.version
        return real(*args)

    monkeypatch.setattr(planning, "generations", meanwhile)
    done = rebuilding.rebuild(case.definitions, [COUNTS], verify=True)
    assert done.swapped and not any(done.differences)


def test_of_two_that_begin_at_once_one_is_refused(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    real = planning.history_of

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(planning, "history_of", real)
        Plan({TOP: 7}, case.definitions.digest).write(case.lake)
        return real(*args)

    monkeypatch.setattr(planning, "history_of", meanwhile)
    with raises_code("REBUILD_UNDER_WAY", match=f"a rebuild of {TOP} is under way"):
        rebuilding.rebuild(case.definitions, [VISITS])
    assert Plan.read(case.lake) == Plan({TOP: 7}, case.definitions.digest)


@pytest.mark.parametrize(
    "at", ["built", "swapped", *(pytest.param(at, marks=pytest.mark.torture) for at in STEPS)]
)
def test_a_rebuild_that_broke_off_goes_on_or_is_aborted(
    case: Visits, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    before, want = case.everything(), of_new_lake(case)

    def reach(step: str, flow: str) -> None:
        if step == at and flow in ("rebuild", COUNTS):
            raise SystemExit

    def broken() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("headwater.runtime.failpoints.reach", _fails(reach))
            with pytest.raises((SystemExit, FlowError)):
                case.rebuild(VISITS)

    broken()
    if at != "swapped":
        assert case.everything() == before
        assert set(abort(case.definitions)) == set(DERIVED)
        assert case.everything() == before
        assert not list((case.root / ".headwater/lake").glob("*/*/g0002"))
        broken()
    assert case.rebuild(VISITS).swapped
    assert case.everything() == want


def test_a_table_that_was_half_made_as_a_rebuild_broke_off_is_made_or_left_out(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed as it makes a table leaves the folder of a log without a commit."""
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    want = of_new_lake(case)

    def reach(step: str, flow: str) -> None:
        if (step, flow) == ("rebuilt", "rebuild"):
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", _fails(reach))
        with pytest.raises((SystemExit, FlowError)):
            case.rebuild(VISITS)
    made = case.lake.places()
    plan = Plan.read(case.lake)
    assert plan is not None
    half = next(name for name in plan.tables if name not in made)
    (case.lake.at(half, plan.tables[half]) / "_delta_log").mkdir(parents=True)
    assert half not in Shadow(case.lake, plan).built()
    assert case.rebuild(VISITS).swapped
    assert half not in case.lake.places()
    assert case.everything() == want


def _fails(reach: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """An error in a flow's thread, and a kill anywhere else: what the process sees of either."""

    def reached(step: str, flow: str) -> None:
        try:
            reach(step, flow)
        except SystemExit:
            if flow == "rebuild":
                raise
            raise FlowError("broken off", code="STOPPED") from None

    return reached


def test_the_live_flow_gives_way_to_the_new_generation(case: Visits) -> None:
    context = case.once()
    flow: Any = flow_of(context, COUNTS)
    context.check(COUNTS)
    case.rebuild(VISITS)
    with pytest.raises(Moved):
        context.check(COUNTS)
    case.visit(random.Random(6))
    case.drain(VISITS)
    assert not flow.step()  # its input is another one now
    again: Any = flow_of(context, COUNTS)
    assert again.step()
    assert case.rows(COUNTS) == of_new_lake(case)[COUNTS]


def test_a_run_does_not_go_on_in_what_other_definitions_have_built(case: Visits) -> None:
    for change in (("silver/visits.py", "n >= 0", "n >= 3"), ("silver/_limits.py", "LEAST = 3", "LEAST = 4")):
        case.write({"silver/_limits.py": "LEAST = 3"})
        context = case.once()
        made = {name: flow_of(context, name) for name in (VISITS, COUNTS)}
        definition = (case.lake.flow_folder(VISITS) / "definition.json").read_bytes()
        case.change(*change)
        flow_of(context, VISITS)  # after a fault that passes: what was loaded is what it is judged by
        assert (case.lake.flow_folder(VISITS) / "definition.json").read_bytes() == definition
        case.rebuild(VISITS)
        built = {name: (case.lake.flow_folder(name) / "definition.json").read_bytes() for name in made}
        for name, flow in made.items():
            with pytest.raises(Moved):
                flow._context.check(name)
            with raises_code(
                "DEFINITIONS_OUTDATED", match=rf"{name} was rebuilt by other .* process {os.getpid()} was"
            ):
                flow_of(context, name)
            assert (case.lake.flow_folder(name) / "definition.json").read_bytes() == built[name]
        case.drain()  # a run that is started now has them
        assert case.everything() == of_new_lake(case)


def test_a_flow_begins_only_in_the_generation_whose_lease_is_held(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(case.definitions, Options(), Board(notices=(notices := StringIO())))
    context = case.once()
    run._leases.take([COUNTS])
    case.rebuild(COUNTS)
    with monkeypatch.context() as patched:  # the swap comes a moment after the look
        patched.setattr(Leases, "follow", lambda self, name: False)
        with pytest.raises(Moved):
            run._begin(context, COUNTS)
    flow = run._begin(context, COUNTS)
    assert flow.name == COUNTS and isinstance(flow, Committing)
    monkeypatch.setattr(flow.committer, "checkpoint", lambda every: os.replace("none", "nowhere"))
    for _ in range(2):  # what is done beside the flows ends no run
        run._keep_house(context)
    assert notices.getvalue().count("gold.counts: its log gets no checkpoint: ") == 1
    with raises_code(
        "LEASE_HELD", table="gold.counts", match=rf"{COUNTS}: process {os.getpid()} is writing it"
    ):
        Lease(COUNTS, case.lake.flow_folder(COUNTS))
    run._leases.release()


@pytest.mark.parametrize("what", ["removed", "an older copy", "an older copy that has grown"])
def test_who_has_read_a_table_that_was_made_anew_stops_and_is_rebuilt(case: Visits, what: str) -> None:
    silver, quarantine = (case.lake.place(name).path.parent for name in (VISITS, "quarantine.silver_visits"))
    copied = silver.with_name("copied")
    shutil.copytree(silver, copied)
    case.visit(random.Random(6))
    case.drain()
    shutil.rmtree(silver)
    if what == "removed":
        shutil.rmtree(quarantine)
    else:
        copied.rename(silver)
    if what != "an older copy":
        case.drain(VISITS)
    if what == "an older copy that has grown":
        case.visit(random.Random(7))
        case.drain(VISITS)
    before = [case.rows(name) for name in (COUNTS, ENDED)]
    assert status.lag(case.definitions, case.lake, COUNTS, {}) is None
    for name in (COUNTS, ENDED):
        with raises_code("INPUT_REPLACED", table=name, match=f"headwater rebuild {name}$"):
            case.drain(name)
    assert [case.rows(name) for name in (COUNTS, ENDED)] == before
    assert not any(hold.who == COUNTS for hold in holds(case.definitions, case.lake))
    case.drain(VISITS)
    assert case.rebuild(COUNTS, ENDED).swapped
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_who_begins_a_table_anew_is_told_who_has_read_it(case: Visits) -> None:
    case.restart()
    path = case.lake.place(RAW).path
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")
    for_all = rf"remove {path.parent}, and run it again; then .*: headwater rebuild {VISITS}$"
    with raises_code("WRITTEN_BY_OTHERS", table=RAW, match=for_all):
        Target(case.lake.place(RAW))
    path = case.lake.place(VISITS).path
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")
    with raises_code("WRITTEN_BY_OTHERS", table=VISITS, match=f": headwater rebuild {COUNTS} {ENDED}$"):
        Target(case.lake.place(VISITS))


def test_a_view_of_a_table_that_was_made_anew_is_computed_anew(case: Visits) -> None:
    case.visit(random.Random(6))
    case.drain()
    shutil.rmtree(case.lake.place(COUNTS).path.parent)
    case.visit(random.Random(7))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_positions_of_before_that_do_not_name_a_commit_go_on_and_get_one(
    case: Visits,
) -> None:
    target = case.target(COUNTS)
    mine = target.flows[COUNTS]
    assert "committed" in mine["consumed"][VISITS]
    unnamed = {VISITS: {name: at for name, at in mine["consumed"][VISITS].items() if name != "committed"}}
    target.append([], Identity(COUNTS, 1, mine["sequence"] + 1, unnamed))
    case.visit(random.Random(6))
    case.drain()
    assert "committed" in log.flows(target.place.path)[COUNTS]["consumed"][VISITS]
    assert case.everything() == of_new_lake(case)


def test_what_can_not_be_rebuilt_is_said(case: Visits) -> None:
    with raises_code("TABLE_IS_HISTORY", table="bronze.raw"):
        case.rebuild(RAW)
    with raises_code("UNKNOWN_TABLE", table="gold.nope"):
        case.rebuild("gold.nope")
    with raises_code("NO_REBUILD"):
        abort(case.definitions)
    assert not case.rebuild(COUNTS, swap=False).swapped
    with raises_code("REBUILD_UNDER_WAY", match=r"a rebuild of gold\.counts, gold\.top is under way"):
        case.rebuild(VISITS)
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    with raises_code("REBUILD_UNDER_WAY", match="a rebuild with other definitions is under way"):
        case.rebuild(COUNTS)
    assert abort(case.definitions) == [COUNTS, TOP]
    assert rebuilding.rebuild(case.definitions, [COUNTS]).swapped
