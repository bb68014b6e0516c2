"""The index of keys finds the rows of a table that have the keys of a batch, however files come and go."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.errors import Where
from headwater.flows.rows import ManyRows
from headwater.flows.work import Work
from headwater.project.rule import Rule
from headwater.project.suite import Suite
from headwater.quality.gate import Gate
from headwater.runtime import jvm
from headwater.storage import key_index, stored
from headwater.storage.identity import Identity
from headwater.storage.key_index import KeyIndex
from headwater.storage.lake import Lake
from headwater.storage.target import Target

COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("n", pa.int64()),
        ("place", pa.struct([("offset", pa.int64())])),
    ]
)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def drawn(draw: random.Random) -> dict[str, Any]:
    return {
        "id": draw.choice([None, "", "a", "b", "ü'\""]),
        "at": draw.choice([None, T0 + timedelta(microseconds=draw.randrange(4))]),
        "price": draw.choice([None, Decimal("1.10"), Decimal("-2.00")]),
        "n": draw.randrange(1_000),
        "place": {"offset": draw.randrange(1_000)},
    }


class Files:
    """The files of a table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        path = str(self.folder / f"{len(list(self.folder.iterdir())):03d} x.parquet")
        pq.write_table(pa.Table.from_pylist(rows, COLUMNS), path, store_schema=False)
        self.rows[path] = rows


@pytest.mark.parametrize("keys", [("id",), ("id", "at", "price")])
def test_it_finds_what_a_search_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(key_index, "_FILES", np.uint64(63))  # of more it begins anew
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    files, index = Files(tmp_path), KeyIndex(keys, COLUMNS)
    for step in range(40):
        files.add([drawn(draw) for _ in range(draw.randrange(1, 30))])
        if step in (10, 20, 21):
            files.add(
                [row for path in draw.sample([*files.rows], 8) for row in files.rows.pop(path)]
            )  # compacted
        if step == 30:
            del files.rows[next(iter(files.rows))]  # as after a rewrite
        batch = [drawn(draw) for _ in range(draw.randrange(3))]
        wanted = {tuple(row[key] for key in keys) for row in batch}
        want = [
            row for rows in files.rows.values() for row in rows if tuple(row[key] for key in keys) in wanted
        ]
        found = index.rows(list(files.rows), pa.Table.from_pylist(batch, COLUMNS))
        assert found.schema == COLUMNS
        assert sorted(found.to_pylist(), key=repr) == sorted(want, key=repr)


def test_of_a_new_key_nothing_is_read(tmp_path: Path) -> None:
    files, index = Files(tmp_path), KeyIndex(("n",), COLUMNS)
    files.add([{**drawn(random.Random(1)), "n": 1}])
    one = pa.Table.from_pylist([{**drawn(random.Random(1)), "n": 1}], COLUMNS)
    assert len(index.rows(list(files.rows), one)) == 1
    Path(next(iter(files.rows))).unlink()  # which nobody looks at
    other = pa.Table.from_pylist([{**drawn(random.Random(1)), "n": 2}], COLUMNS)
    assert len(index.rows(list(files.rows), other)) == 0


def test_after_a_compaction_only_what_it_wrote_is_read(tmp_path: Path) -> None:
    files, index = Files(tmp_path), KeyIndex(("n",), COLUMNS)
    rows = [{**drawn(random.Random(1)), "n": n} for n in range(4)]
    for n in range(3):
        files.add(rows[n : n + 1])
    batch = pa.Table.from_pylist(rows[3:], COLUMNS)
    assert len(index.rows(list(files.rows), batch)) == 0
    first, *others = files.rows
    for path in others:
        del files.rows[path]
    files.add(rows[1:3])
    Path(first).unlink()  # which nobody looks at
    assert len(index.rows(list(files.rows), batch)) == 0
    assert len(index.rows(list(files.rows), pa.Table.from_pylist(rows[2:], COLUMNS))) == 1


def test_columns_may_have_the_names_that_it_uses(tmp_path: Path) -> None:
    columns = pa.schema([(name, pa.int64()) for name in ("number", "name", "file", "h", "_file")])
    rows = pa.table([[1, 2]] * 5, schema=columns)
    pq.write_table(rows, tmp_path / "a.parquet")
    index = KeyIndex(("name",), columns)
    assert index.rows([str(tmp_path / "a.parquet")], rows.slice(1)) == rows.slice(1)


def test_files_of_before_a_column_was_added_have_null_in_it(tmp_path: Path) -> None:
    files = Files(tmp_path)
    rows: list[dict[str, Any]] = [
        {"id": None, "at": T0, "price": None, "n": n, "place": None} for n in (1, 2)
    ]
    older = pa.Table.from_pylist([{"at": T0, "n": 0}], pa.schema([COLUMNS.field("at"), COLUMNS.field("n")]))
    pq.write_table(older, tmp_path / "000 x.parquet", store_schema=False)
    index = KeyIndex(("id", "at"), COLUMNS)
    batch = pa.Table.from_pylist([{"at": T0, "n": 9}], COLUMNS)
    (only,) = index.rows([str(tmp_path / "000 x.parquet")], batch).to_pylist()
    assert only == {"id": None, "at": T0, "price": None, "n": 0, "place": None}
    files.add(rows)
    found = index.rows([str(tmp_path / "000 x.parquet"), *files.rows], batch)
    assert (found.schema, sorted(found["n"].to_pylist())) == (COLUMNS, [0, 1, 2])


# A batch of many rows

DDL = "id STRING, n BIGINT, _source STRUCT<cluster: STRING, topic: STRING, partition: INT, offset: BIGINT>"
UNIQUE = Rule("id", "expect_column_values_to_be_unique", {"column": "id"}, "drop", Where("q"))


class Many:
    """A table into which batches are written as those of many rows are."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        columns = jvm.ddl(DDL)
        self.columns = stored.schema(columns)
        self.table = Target(Lake(folder / "lake").create("silver.t", self.columns, properties={}))
        index = KeyIndex(("id",), self.columns)
        gate = Gate(Suite("silver.t", folder, (UNIQUE,)), columns)
        self.work = Work(session, columns, None, lambda rows: rows, gate, self.table.files, indexes=[index])
        self._folder, self._offset, self._batch = folder, 0, 0

    def take(self, ids: list[str | None]) -> int:
        """A batch of rows with these keys; how many are dropped."""
        file = self._folder / f"{self._batch}.parquet"
        rows = [
            {"id": id, "n": 1, "_source": {"cluster": "c", "topic": "t", "partition": 0, "offset": offset}}
            for offset, id in enumerate(ids, self._offset)
        ]
        pq.write_table(pa.Table.from_pylist(rows, self.columns), file)
        batch = ManyRows(self.work, [str(file)], len(rows))
        files = batch.write(self.table, str(self._batch))
        counts = batch.counts()
        assert counts.tally.rows == len(ids) == self.table.rows(files) + counts.tally.dropped
        self.table.append(files, Identity("silver.t", 1, self._batch, {}))
        self._offset, self._batch = self._offset + len(ids), self._batch + 1
        return counts.tally.dropped


@pytest.mark.parametrize("few", [True, False], ids=["few of the table's rows", "many"])
def test_many_rows_are_compared_with_those_of_their_keys(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        monkeypatch.setattr("headwater.flows.work.ONE_TASK", 0)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, many, seen = random.Random(seed), Many(tmp_path, interpreted), set[str]()
    for number in range(8):
        pool = [None, *(f"{number}-{n}" for n in range(20)), *sorted(seen)]
        ids = [draw.choice(pool) for _ in range(draw.randrange(1, 30))] if number % 3 else pool[:21]
        wanted = {id for id in ids if id} - seen
        assert many.take(ids) == sum(id is not None for id in ids) - len(wanted)
        seen |= wanted
    held = many.table.held(many.columns)["id"].to_pylist()
    assert sorted(id for id in held if id) == sorted(seen)


def test_a_rebuild_reads_each_row_of_the_table_once(tmp_path: Path, interpreted: SparkSession) -> None:
    """Files that the index knows are not there any more: of keys that are new nothing else is looked at."""
    many = Many(tmp_path, interpreted)
    for number in range(6):
        before = many.table.files()
        assert many.take([f"{number}-{n}" for n in range(50)]) == 0
        for file in before:
            Path(file).unlink(missing_ok=True)
    assert len(many.table.files()) == 6 and sum(Path(file).exists() for file in many.table.files()) == 1
