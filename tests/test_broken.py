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
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, ENDED, RAW, TOP, VISITS, Visits

import headwater
from headwater.errors import DamageError
from headwater.planner.changes import plan
from headwater.query import on_spark
from headwater.query.sources import of_project
from headwater.runtime import failpoints
from headwater.storage import delta, json_file, log
from headwater.storage.names import quarantine_name


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
    kept = call(["state", VISITS], case.root)
    assert kept.returncode == 1 and "put it back" in kept.stderr
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


def test_a_table_that_rows_were_taken_from_stops_its_readers_and_no_listing(case: Visits) -> None:
    case.visit(random.Random(9))
    DeltaTable(case.lake.place(RAW).path).delete("offset = 0")
    lines = json.loads(call(["status", "--json"], case.root).stdout)
    behind = {line["table"]: line["behind"] for line in lines}
    assert behind.keys() >= {RAW, VISITS, COUNTS} and behind[VISITS] is None and behind[COUNTS] == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_table_is_made_anew_as_its_error_says(case: Visits, damage: str) -> None:
    before = {name: case.rows(name) for name in (VISITS, COUNTS)}
    DAMAGES[damage](case)
    case.rebuild(VISITS)
    assert {name: case.rows(name) for name in before} == before


SPOILED = {"empty": b"", "zeros": b"\0" * 40, "garbage": b"{{{", "half": b'{"a": 1, "b', "other": b""}


@pytest.mark.parametrize("damage", SPOILED)
def test_a_small_file_is_what_was_written_or_is_named(tmp_path: Path, damage: str) -> None:
    file, content = tmp_path / "x.json", {"a": [1, {"b": "ä"}], "checksum of": None}
    for indent in (None, 1):
        json_file.write(file, content, indent)
        assert json_file.read(file, hint="") == content
    file.write_text(json.dumps(content))  # as it was written before there were checksums
    assert json_file.read(file, hint="") == content
    json_file.write(file, content)
    file.write_bytes(SPOILED[damage] or file.read_bytes().replace(b"1", b"2") * (damage == "other"))
    with raises_code("NOTE_DAMAGED", table="silver.x", file=file, match="; do this$") as raised:
        json_file.read(file, table="silver.x", hint="do this")
    assert isinstance(raised.value, DamageError)
    with pytest.raises(FileNotFoundError):
        json_file.read(tmp_path / "none.json", hint="")


class Killed(Exception):  # noqa: N818 (it stands for a kill)
    """The process ends here."""


def test_a_lost_intent_is_made_again_from_the_tables(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    before, file = case.rows(VISITS), case.lake.flow_folder(VISITS) / "intent.json"
    file.write_bytes(b"")
    case.visit(random.Random(7))
    case.drain()
    assert len(case.rows(VISITS)) > len(before) and json_file.read(file, hint="")["sealed"]

    case.visit(random.Random(8))
    quarantine = quarantine_name(VISITS)
    rejected = len(case.rows(quarantine))

    def reach(step: str, flow: str) -> None:
        if step == "committing":
            raise Killed(flow)

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with pytest.raises(Killed):
            case.drain(VISITS)
    assert len(case.rows(quarantine)) > rejected  # and its batch is not in the table
    file.write_bytes(b"")
    with raises_code("NOTE_DAMAGED", table=VISITS, file=file):
        case.drain(VISITS)
    case.rebuild(VISITS)
    taken = [case.rows(name, "_source" if name == VISITS else "*") for name in (VISITS, quarantine)]
    assert sum(map(len, taken)) <= case.sent and len(taken[1]) > rejected


def test_a_lost_definition_is_named(case: Visits) -> None:
    file = case.lake.flow_folder(COUNTS) / "definition.json"
    file.write_bytes(b"")
    verdicts = {line.table: line.verdict for line in plan(case.definitions)}
    assert verdicts[COUNTS].effect == "broken" and str(file) in verdicts[COUNTS].why[0]
    assert verdicts[VISITS].effect == "unchanged"
    with raises_code("NOTE_DAMAGED", table=COUNTS, file=file, match="remove it if"):
        case.drain(COUNTS)
    file.unlink()
    before = case.rows(COUNTS)
    case.drain(COUNTS)
    assert case.rows(COUNTS) == before and file.exists()


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "no file"])
def test_a_lake_outlives_its_catalog(case: Visits, damage: str) -> None:
    before, catalog = case.lake.places(), case.lake.catalog
    rows = case.everything()
    newest_ = delta.entry(catalog, log.head(catalog))
    if damage == "gone":
        shutil.rmtree(catalog)
    elif damage == "no file":
        for file in catalog.glob("*.parquet"):
            file.unlink()
    else:
        newest_.write_bytes(b"" if damage == "empty" else b"{{{")
    assert case.lake.places() == before
    case.visit(random.Random(9))
    case.rebuild(COUNTS)  # which writes the catalog
    assert case.lake.places().keys() == before.keys() and case.lake.place(COUNTS).generation == 2
    assert delta.opened(catalog).to_pyarrow_table().num_rows == len(before)
    case.drain()
    assert len(case.rows(VISITS)) > len(rows[VISITS])


def test_a_lake_that_has_lost_its_catalog_is_not_begun_anew(case: Visits) -> None:
    (case.lake.root / "_catalog.json").unlink()
    shutil.rmtree(case.lake.catalog)
    for command in (["ls"], ["status"], ["query", f"SELECT * FROM {COUNTS}"]):
        done = call(command, case.root)
        assert done.returncode == 1 and "put it back from a copy" in done.stderr, done
    with raises_code("CATALOG_MISSING", file="_catalog"):
        case.drain()
    assert not case.lake.catalog.exists()


@pytest.mark.parametrize("content", [b"", b"{{{", b"[1]", None])
def test_a_checkpoint_of_a_log_that_is_lost_is_done_without(case: Visits, content: bytes | None) -> None:
    path = case.lake.place(VISITS).path
    before = case.rows(VISITS)
    delta.opened(path).create_checkpoint()
    hint = path / delta.LOG / "_last_checkpoint"
    if content is None:
        delta.entry(path, log.head(path)).with_suffix(".checkpoint.parquet").write_bytes(b"")
    else:
        hint.write_bytes(content)
        assert log.checkpoint(path) == (0, 0)
    assert case.rows(VISITS) == before
    case.visit(random.Random(11))
    case.drain()
    assert len(case.rows(VISITS)) > len(before)
