"""Rows go by their age, what was made of them stays; and a rebuild reads what is left, or what came since."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner
from visits import COUNTS, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater import query
from headwater.cli import app
from headwater.errors.codes import Code
from headwater.operations import maintain
from headwater.operations.maintain.compact import compact
from headwater.operations.rebuild import abort
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner.changes import plan
from headwater.query.inspect.history import history
from headwater.query.sources import Source, of_project
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.delta import files

QUARANTINE = "quarantine.silver_visits"
SHORT = """kafka: embedded
maintain:
  keep: 0s
  tables:
    bronze.raw: {retention: 1ms}
    quarantine.silver_visits: {retention: 1ms}
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("retention"), interpreted)
    draw = random.Random(5)
    for _ in range(4):
        case.visit(draw)
    return case


@pytest.fixture(scope="module")
def read(sent: Visits, tmp_path_factory: pytest.TempPathFactory) -> Visits:
    """The same, of which every table has read all."""
    case = sent.copied(tmp_path_factory.mktemp("retention") / "read")
    case.drain()
    return case


@pytest.fixture
def case(sent: Visits, tmp_path: Path) -> Visits:
    return sent.copied(tmp_path / "project")


@pytest.fixture
def drained(read: Visits, tmp_path: Path) -> Visits:
    return read.copied(tmp_path / "project")


def expire(case: Visits, conf: str = SHORT) -> dict[str, int]:
    """Maintain all, as if many commits had been made; {table → rows that went}."""
    case.write({"conf/local.yaml": conf})
    for place in case.lake.places().values():
        DeltaTable(place.path).create_checkpoint()
    return {one.table: one.expired for one in maintain.maintain(case.definitions)}


def test_rows_go_and_what_was_made_of_them_stays(case: Visits) -> None:
    case.drain(VISITS, COUNTS, TOP)  # its finals are behind
    case.visit(random.Random(8))  # and nobody has read these
    want = of_new_lake(case)
    held = len(case.rows(QUARANTINE))
    assert held and expire(case) == {
        RAW: 200,
        QUARANTINE: held,
        **dict.fromkeys((VISITS, COUNTS, TOP), 0),
    }
    assert case.rows(RAW) == case.rows(QUARANTINE) == []
    for engine in ("duckdb", "spark"):
        assert query.run(f"SELECT count(*) FROM {RAW}", project=case.root, engine=engine).rows == [(0,)]
    case.drain()
    quarantined = case.rows(QUARANTINE)
    assert len(case.rows(VISITS)) == len(want[VISITS])
    assert 0 < len(quarantined) < len(want[QUARANTINE])
    assert {**case.everything(), QUARANTINE: []} == {**want, QUARANTINE: []}
    case.visit(random.Random(7))
    case.drain()
    assert expire(case)[RAW] == 40 and expire(case)[RAW] == 0
    assert len(case.rows(VISITS)) > len(want[VISITS])
    assert log.first(case.lake.place(RAW).path) > 0  # files and versions are gone, too
    (first, *_) = history(_source(case, RAW), 3).versions
    assert first.what.startswith("rows committed before 20") and first.what.endswith(" expired")


def test_records_that_left_a_quarantine_by_their_age_are_no_difference(drained: Visits) -> None:
    case = drained
    expire(case, SHORT.replace("    bronze.raw: {retention: 1ms}\n", ""))
    assert case.rows(QUARANTINE) == [] and len(case.rows(RAW)) == 160
    case.visit(random.Random(8))
    case.drain()
    (found,) = reconcile(case.definitions, [VISITS])
    (held,) = (one for one in found.differences if one.table == QUARANTINE)
    assert found.same and 0 < held.before < held.after, found
    (note,) = found.notes
    assert note.startswith(f"{QUARANTINE} has no rows from before 20")
    rebuilt = case.rebuild(VISITS, verify=True, swap=False)
    assert not any(rebuilt.differences) and note in rebuilt.notes
    abort(case.definitions)
    path = Path(files(case.lake.place(QUARANTINE).path)[0])
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    (found,) = reconcile(case.definitions, [VISITS])
    assert [(one.table, one.gone, one.new) for one in found.differences if one] == [(QUARANTINE, 0, 1)]


def test_what_was_added_since_the_last_proof_stays_until_it_is_compared(
    drained: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, reach, done, draw = drained, failpoints.reach, list[dict[str, int]](), random.Random(8)
    (proof,) = reconcile(case.definitions, [VISITS])
    for _ in range(3):
        case.visit(draw)
        case.drain()

    def meanwhile(step: str, flow: str) -> None:
        if not done and flow == VISITS:
            done.append(expire(case))
        reach(step, flow)

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", meanwhile)
        (found,) = reconcile(case.definitions, [VISITS], since_last=True)
    assert done[0][QUARANTINE] and log.first(case.lake.place(QUARANTINE).path) == 0
    assert found.same and found.since == proof.version >= log.first(case.lake.place(VISITS).path), found
    expire(case)
    (again,) = reconcile(case.definitions, [VISITS], since_last=True)
    assert again.same and again.since == found.version and again.rows == 0
    case.visit(draw)
    case.drain()
    expire(case)
    (whole,) = reconcile(case.definitions, [VISITS], since_last=True)
    assert whole.since is None and "versions since its last proof are gone" in whole.notes[-1]


def _source(case: Visits, name: str) -> Source:
    return of_project(case.root, "local").named([name])[0]


def test_a_rebuild_that_would_lose_rows_has_to_be_told(drained: Visits) -> None:
    case = drained
    assert not any(one.verdict.effect != "unchanged" for one in plan(case.definitions))
    expire(case)
    case.visit(random.Random(8))
    case.drain()
    before = case.everything()
    (found,) = reconcile(case.definitions, [VISITS])
    assert not found.same and "bronze.raw has no rows from before" in found.notes[0]
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    assert {one.verdict.effect for one in plan(case.definitions) if one.table in (COUNTS, TOP)} == {"rebuild"}
    case.change(
        "silver/visits.py", 'raw.where("n >= 0")', 'raw.where("n >= 0").drop("n").withColumn("n", F.lit("1"))'
    )
    lines = {one.table: one.verdict for one in plan(case.definitions)}
    assert lines[VISITS].effect == "loses" and lines[ENDED].effect == "rebuild"
    assert "bronze.raw has no rows from before 20" in lines[VISITS].why[-1]
    with raises_code("HISTORY_GONE", table="silver.visits"):
        case.rebuild(VISITS)
    assert case.everything() == before
    assert case.rebuild(VISITS, since="earliest").swapped
    assert case.everything() == of_new_lake(case) != before


def test_a_rebuild_reads_what_came_since(drained: Visits) -> None:
    case = drained
    files = log.snapshot(case.bronze.place.path, case.bronze.version)
    since = datetime.fromtimestamp(files[2].order / 1000, UTC).isoformat()
    assert not case.rebuild(VISITS, since=since, swap=False).swapped
    with raises_code(
        "REBUILD_UNDER_WAY", match=r"a rebuild of silver\.visits, .* is under way, from 20.* on; end"
    ):
        case.rebuild(VISITS)
    assert case.rebuild(VISITS, since=since).swapped  # it goes on where it was
    found = case.everything()
    case.bronze.expire([file.path for file in files[:2]], datetime.now(UTC))
    assert found == of_new_lake(case)
    case.visit(random.Random(9))
    case.drain()
    assert case.rebuild(VISITS, since="3").swapped
    assert case.everything() == of_new_lake(case)
    assert case.rebuild(VISITS, since=(datetime.now(UTC) + timedelta(days=1)).isoformat()).swapped
    assert case.rows(VISITS) == []
    case.visit(random.Random(10))
    case.drain()
    assert 0 < len(case.rows(VISITS)) <= 40


@pytest.mark.parametrize(
    ("table", "since", "code", "why"),
    [
        (VISITS, "soon", "TIME_INVALID", "write earliest, a time like 2026-01-31T06:00:00Z, or a version"),
        (VISITS, "99", "UNKNOWN_VERSION", r"bronze\.raw has the versions 0 to 4"),
        (TOP, "2026-01-31", "START_NOT_POSSIBLE", r"gold\.top is a view of the whole of gold\.counts"),
    ],
)
def test_from_when_on_it_can_not_be_is_said(
    drained: Visits, table: str, since: str, code: Code, why: str
) -> None:
    case = drained
    with raises_code(code, match=f"--from {since}.*{why}"):
        case.rebuild(table, since=since)
    with raises_code("NO_REBUILD"):
        abort(case.definitions)
    said = CliRunner().invoke(
        app, ["rebuild", table, "--from", since, "--verify", "--project", str(case.root)]
    )
    assert said.exit_code == 2 and "--from makes other rows" in said.output


def test_rows_of_all_ages_are_not_put_into_one_file(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    files = log.snapshot(case.bronze.place.path, case.bronze.version)
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    part = timedelta(milliseconds=1)
    assert len({file.order for file in files}) == 4
    assert compact(case.bronze, None, within=part) == 0
    assert compact(case.bronze, None, within=timedelta(days=3650)) == 3


@pytest.mark.parametrize("table", ["silver.visits", "gold.top", "quarantine.silver_visits__resolved"])
def test_only_history_goes_by_its_age(case: Visits, table: str) -> None:
    case.write({"conf/local.yaml": f"maintain: {{tables: {{{table}: {{retention: 1d}}}}}}\n"})
    with raises_code("CONF_INVALID", match=f"{table}: a retention is for bronze tables, quarantines and ops"):
        case.restart()


def test_the_listing_says_what_went(case: Visits) -> None:
    expire(case)
    said: Any = CliRunner().invoke(app, ["maintain", "--project", str(case.root)])
    assert said.exit_code == 0 and "rows" in said.output and "expired" in said.output
