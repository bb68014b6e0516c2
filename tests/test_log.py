"""The log of a Delta table, read without an engine."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from raising import raises_code

from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake, Place
from headwater.storage.target import Target

COLUMNS = pa.schema([("n", pa.int64())])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A table with two commits of rows, and one of none, by one flow."""
    target = Target(Lake(tmp_path).create("silver.t", COLUMNS, properties={}))
    for sequence, rows in enumerate(([1, 2], [3], [])):
        target.append(
            write(target.place.path, sequence, rows), Identity("silver.t", 1, sequence, {"in": sequence})
        )
    return target.place


def write(table: Path, sequence: int, rows: list[int]) -> list[str]:
    if not rows:
        return []
    folder = table / f"{sequence:012d}-test"
    folder.mkdir()
    pa.parquet.write_table(pa.table({"n": rows}, COLUMNS), folder / "part.parquet")
    return [f"{folder.name}/part.parquet"]


def test_no_table_has_no_head(tmp_path: Path) -> None:
    assert log.head(tmp_path) == -1 and not log.exists(tmp_path) and log.flows(tmp_path) == {}


def test_commits_say_what_they_added(place: Place) -> None:
    assert log.head(place.path) == 3
    found = list(log.commits(place.path, after=0, upto=3))
    assert [commit.version for commit in found] == [1, 2, 3]
    assert [[file.rows for file in commit.added] for commit in found] == [[2], [1], []]
    file = found[0].added[0]
    assert Path(file.path) == place.path / "000000000000-test" / "part.parquet"
    assert file.size == Path(file.path).stat().st_size
    assert abs((datetime.now(UTC) - found[0].at).total_seconds()) < 60


def test_identity_is_read_back(place: Place) -> None:
    assert log.flows(place.path) == {
        "silver.t": {"generation": 1, "sequence": 2, "consumed": {"in": 2}, "newest": None}
    }


def test_names_with_odd_characters_are_paths(tmp_path: Path) -> None:
    table = pa.table({"k": ["a b/ü%", "x"], "n": [1, 2]})
    write_deltalake(tmp_path / "t", table, partition_by=["k"])
    files = [file.path for file in log.read(tmp_path / "t", 0).added]
    assert len(files) == 2 and all(Path(file).is_file() for file in files)


def test_rows_taken_away_are_counted_and_maintenance_is_not(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(tmp_path / "t", pa.table({"n": [n, n + 1]}), mode="append")
    table = DeltaTable(tmp_path / "t")
    table.optimize.compact()
    table.delete("n = 3")
    compacted, deleted = log.commits(tmp_path / "t", after=2, upto=4)
    assert (compacted.removed, compacted.added) == (0, ())
    assert deleted.removed == 1 and deleted.operation == "DELETE"
    assert sum(file.rows for file in deleted.added) == 5


def test_a_cleaned_log_is_an_error_that_names_the_version(place: Place) -> None:
    gone = place.path / "_delta_log" / f"{2:020d}.json"
    gone.unlink()
    assert log.read(place.path, 3).version == 3
    with raises_code("LOG_SHORTENED") as refused:
        list(log.commits(place.path, after=0, upto=3))
    assert str(gone) in str(refused.value)
    assert "version 2 is gone from the log; ask for a newer one" in str(refused.value)


def test_a_commit_half_written_by_a_checkpoint_or_a_stray_file_is_no_head(place: Place) -> None:
    folder = place.path / "_delta_log"
    for name in (
        "00000000000000000009.checkpoint.parquet",
        "00000000000000000009.json.tmp",
        ".9.json",
        "_x.json",
    ):
        (folder / name).write_text("")
    assert log.head(place.path) == 3


def test_the_newest_version_is_that_of_the_table_that_is_there_now(tmp_path: Path) -> None:
    logs = tmp_path / "_delta_log"

    def make(*versions: int) -> None:
        logs.mkdir(exist_ok=True)
        for version in versions:
            (logs / f"{version:020d}.json").touch()

    make(*range(4))
    assert (log.first(tmp_path), log.head(tmp_path)) == (0, 3)
    make(4, 5)
    for version in range(5):  # its beginning is forgotten
        (logs / f"{version:020d}.json").unlink()
    assert (log.first(tmp_path), log.head(tmp_path)) == (5, 5)
    shutil.rmtree(logs)
    assert (log.first(tmp_path), log.head(tmp_path)) == (-1, -1)
    make(0, 1)
    assert (log.first(tmp_path), log.head(tmp_path)) == (0, 1)
