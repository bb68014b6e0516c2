"""What is broken is one row of a listing, says what to do, and stops nothing else; and what it says helps."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from commands import call
from pyspark.sql import SparkSession
from visits import COUNTS, ENDED, RAW, TOP, VISITS, Visits

import headwater
from headwater.planner.changes import plan
from headwater.query import on_spark
from headwater.query.sources import of_project
from headwater.storage import delta, log


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    """A project of which every table is written, some in several commits."""
    case = Visits(tmp_path_factory.mktemp("whole"), interpreted)
    for seed in range(3):
        case.visit(random.Random(seed))
        case.drain()
    return case


@pytest.fixture
def case(whole: Visits, tmp_path: Path) -> Visits:
    return whole.copied(tmp_path / "project")


def newest(case: Visits, table: str) -> Path:
    path = case.lake.place(table).path
    return delta.entry(path, log.head(path))


DAMAGES: dict[str, Callable[[Visits], Any]] = {
    "gone": lambda case: shutil.rmtree(case.lake.place(VISITS).path),
    "empty": lambda case: newest(case, VISITS).write_bytes(b""),
    "garbage": lambda case: newest(case, VISITS).write_bytes(b"\0\0\0\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_table_is_one_row_and_stops_nothing_else(case: Visits, damage: str) -> None:
    for name in ("gold/ended.sql", "gold/top.sql"):
        (case.root / name).unlink()
    counted = case.rows(COUNTS)
    DAMAGES[damage](case)

    def listed(*command: str) -> dict[str, dict[str, Any]]:
        done = call([*command, "--json"], case.root)
        found = json.loads(done.stdout)
        lines = found["tables"] if isinstance(found, dict) else found
        return {line.get("name", line.get("table")): line for line in lines}

    for command in ("ls", "status", "state"):
        lines = listed(command)
        broken = {name: line["error"] for name, line in lines.items() if line["error"]}
        assert broken.keys() == {VISITS} and COUNTS in lines
        assert str(case.lake.place(VISITS).path) in broken[VISITS] and "put it back" in broken[VISITS]
        said = call([command], case.root)
        assert said.returncode == 0 and said.stdout.count("put it back") == 1
    verdicts = {line.table: line.verdict.effect for line in plan(case.definitions)}
    assert [name for name, effect in verdicts.items() if effect == "broken"] == [VISITS]
    assert (verdicts[RAW], verdicts[COUNTS], verdicts[TOP]) == ("unchanged", "unchanged", "gone")

    asked = f"SELECT count(*) AS n FROM {COUNTS}"
    assert json.loads(call(["query", asked, "-f", "json"], case.root).stdout) == [{"n": len(counted)}]
    refused = call(["query", f"SELECT * FROM {VISITS}"], case.root)
    assert (
        refused.returncode == 1 and "put it back" in refused.stderr and len(refused.stderr.splitlines()) == 1
    )
    connection = headwater.connect(case.root)
    assert connection.execute(asked).fetchall() == [(len(counted),)]
    with pytest.raises(duckdb.Error, match="put it back"):
        connection.execute(f"SELECT * FROM {VISITS}")
    spark = on_spark.session(of_project(case.root, "local"))
    assert spark.sql(asked).collect() == [(len(counted),)]
    with pytest.raises(Exception, match="put it back"):
        spark.sql(f"SELECT * FROM {VISITS}").collect()

    assert call(["drop", TOP, "--yes"], case.root).returncode == 0
    assert TOP not in case.lake.places() and case.rows(COUNTS) == counted
    assert call(["drop", ENDED, "--yes"], case.root).returncode == 0
    (case.root / "gold/counts.sql").unlink()
    (case.root / "silver/visits.py").unlink()
    assert call(["drop", COUNTS, "--yes"], case.root).returncode == 0
    assert call(["drop", VISITS, "--yes"], case.root).returncode == 0
    assert [name for name in case.lake.places() if not name.startswith("ops.")] == [RAW]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_table_is_made_anew_as_its_error_says(case: Visits, damage: str) -> None:
    before = {name: case.rows(name) for name in (VISITS, COUNTS)}
    DAMAGES[damage](case)
    case.rebuild(VISITS)
    assert {name: case.rows(name) for name in before} == before
