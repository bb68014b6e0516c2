"""What is built is compared with the live tables as they were at one moment, whatever comes meanwhile."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, DERIVED, ENDED, FILES, TOP, VISITS, Visits

from headwater.flows.context import Moved
from headwater.flows.declared import flow_of
from headwater.flows.upstream import Upstream
from headwater.operations.rebuild import abort
from headwater.operations.rebuild.cut import Cut
from headwater.operations.rebuild.versions import choose
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.delta import files
from headwater.storage.identity import Identity
from headwater.storage.target import Target

IDLE = FILES["gold/ended.sql"].replace(
    "('headwater.emit'", "('headwater.idle_timeout' = '1ms', 'headwater.emit'"
)


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Visits:
    return Visits(tmp_path / "project", interpreted, {"gold/ended.sql": IDLE})


def behind(case: Visits, draw: random.Random) -> None:
    """Every table has read something else of the one above it."""
    for names in (DERIVED, (VISITS, COUNTS, ENDED), (VISITS, COUNTS), (VISITS,), ()):
        case.visit(draw)
        case.drain(*names) if names else None


def test_what_comes_meanwhile_is_no_difference(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(11)
    behind(case, draw)
    heads = {name: len(case.rows(name)) for name in DERIVED}
    reach = failpoints.reach

    def meanwhile(step: str, flow: str) -> None:
        if (step, flow) == ("planned", "rebuild"):
            case.visit(draw)
            case.drain()
        reach(step, flow)

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", meanwhile)
        done = case.rebuild(VISITS, verify=True)
    assert done.swapped and not any(done.differences), done.differences
    assert done.notes == []
    compared = {one.table: one.before for one in done.differences}
    assert {name: compared[name] for name in DERIVED} == heads  # as they were when it began
    before = case.everything()
    assert len(before[VISITS]) > heads[VISITS]  # and what came is in the new tables
    case.drain()
    assert case.everything() == before


def test_live_flows_rest_until_the_swap(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(16)
    case.visit(draw)
    case.drain()
    heads = {name: log.head(case.lake.place(name).path) for name in DERIVED}
    context = replace(case.once(), once=False)
    moved: set[str] = set()
    flows = {name: flow_of(context, name) for name in DERIVED}
    reach = failpoints.reach

    def run(name: str) -> None:
        try:
            flows[name].run()
        except Moved:
            moved.add(name)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in DERIVED]

    def held(step: str, flow: str) -> None:
        if (step, flow) == ("holding", "rebuild"):
            case.visit(draw)  # what a flow would take
            for thread in threads:
                thread.start()
        if (step, flow) == ("swapped", "rebuild"):
            assert not moved
        reach(step, flow)

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", held)
        done = case.rebuild(VISITS)
    assert done.swapped and done.held > 0
    for thread in threads:
        thread.join(60)
    assert moved == set(DERIVED)
    for name, head in heads.items():  # the generation before got nothing any more
        assert log.head(case.lake.at(name, 1)) == head
    before = case.everything()
    case.drain()
    assert case.everything() == before  # what came while they rested was there at the swap


def test_a_row_that_is_other_is_found_and_nothing_swapped(case: Visits) -> None:
    behind(case, random.Random(12))
    path = files(case.lake.place(VISITS).path)[0]
    rows = pq.read_table(path, partitioning=None)
    at = rows.schema.get_field_index("n")
    pq.write_table(rows.set_column(at, "n", pc.add(rows["n"], 1)), path)
    done = case.rebuild(VISITS, verify=True)
    assert not done.swapped
    found = {one.table: (one.gone, one.new) for one in done.differences if one}
    assert found == {VISITS: (len(rows), len(rows))}
    with raises_code("REBUILD_UNDER_WAY", match=r"a rebuild of .* is under way"):
        case.rebuild(COUNTS, verify=True)
    again = case.rebuild(VISITS, verify=True)  # it is compared at the same versions
    assert again.differences == done.differences
    assert case.rebuild(VISITS).swapped
    assert sum(row[1] for row in case.rows(COUNTS)) == len(case.rows(VISITS))


def test_what_did_not_stop_at_a_cut_is_not_verified(case: Visits) -> None:
    case.visit(random.Random(13))
    case.drain()
    case.rebuild(COUNTS, swap=False)
    with raises_code(
        "REBUILD_UNDER_WAY", match="has not stopped where it could be compared; swap it without"
    ):
        case.rebuild(COUNTS, verify=True)
    abort(case.definitions)
    assert case.rebuild(COUNTS, verify=True).swapped


def test_windows_that_silence_closed_close_there_again(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(14)
    with monkeypatch.context() as patched:
        patched.setattr(Upstream, "left", lambda self, position, found: dict.fromkeys(found, (0, 0)))
        for _ in range(2):
            case.visit(draw)
            case.drain(VISITS)
            flow: Any = flow_of(replace(case.once(), once=False), ENDED)
            flow.recover()
            while flow.step():  # all partitions are silent: the clock closes what lies in the past
                pass
    case.visit(draw)  # of windows that are closed
    case.drain()
    late = len(case.rows(f"{ENDED}_late"))
    assert late and not case.rows(f"{ENDED}__state")[3:]
    done = case.rebuild(ENDED, verify=True, swap=False)
    assert not any(done.differences) and done.notes == []
    abort(case.definitions)
    with monkeypatch.context() as patched:
        patched.setattr(Cut, "_closings", lambda self, name: ())
        done = case.rebuild(ENDED, verify=True, swap=False)
    assert any(done.differences)  # by rows alone, some would have been on time
    before = case.rows(ENDED)
    assert case.rebuild(ENDED).swapped
    assert {row[:2] for row in case.rows(ENDED)} >= {row[:2] for row in before}  # what is over stays so


def test_a_cut_reads_no_part_of_a_commit_of_a_table_that_is_built(case: Visits) -> None:
    draw = random.Random(15)
    behind(case, draw)
    project, lake = case.definitions, case.lake
    whole = choose(project, lake, list(DERIVED))
    assert whole == {name: log.head(lake.place(name).path) for name in DERIVED}
    counts = Target(lake.place(COUNTS))
    mine = counts.flows[COUNTS]
    part = {VISITS: {**mine["consumed"][VISITS], "files": 1}}
    counts.append([], Identity(COUNTS, 1, mine["sequence"] + 1, part))
    assert choose(project, lake, list(DERIVED)) == whole  # the version before
    assert choose(project, lake, [COUNTS, TOP])[COUNTS] == whole[COUNTS] + 1  # what it reads stays as it is
