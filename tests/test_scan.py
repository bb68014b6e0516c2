"""Rows of files for DuckDB: in memory or not, they are the files' rows, and all that are wanted."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_final import seeded

from headwater.common import database, scratch
from headwater.errors import DamageError
from headwater.storage import recent, scan, stored

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("amount", pa.decimal128(18, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("_source", pa.struct([("partition", pa.int32()), ("offset", pa.int64())])),
    ]
)


def drawn(draw: random.Random, count: int) -> pa.Table:
    def some(value: Any) -> Any:
        return draw.choice([None, value, value, value])

    rows = [
        {
            "id": some(f"k{draw.randrange(9)}"),
            "n": some(draw.randrange(9)),
            "amount": some(Decimal(draw.randrange(9)) / 4),
            "at": some(BEGIN + timedelta(seconds=draw.randrange(9))),
            "share": some(draw.choice([float("nan"), 0.5, -0.0])),
            "_source": {"partition": draw.randrange(3), "offset": number},
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def written(folder: Path, tables: list[pa.Table]) -> list[str]:
    files = [str(folder / f"{number}.parquet") for number in range(len(tables))]
    for file, rows in zip(files, tables, strict=True):
        pq.write_table(rows, file, store_schema=False, write_page_checksum=True)
    return files


def rows_of(files: list[str], query: str = "FROM there", **options: Any) -> list[tuple[Any, ...]]:
    with scratch.connection() as connection:
        connection.register("asked", options.pop("asked", pa.table({"n": [0]})))
        found = scan.scan(connection, COLUMNS, files, **options)
        sql = f"WITH there AS (FROM {found.sql}) {query}"
        rows = database.table(connection, sql, found.parameters)
        return sorted(map(repr, rows.to_pylist()))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> recent.Recent:
    """Nothing is in memory yet."""
    found = recent.Recent()
    monkeypatch.setattr(recent, "KEPT", found)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_they_are_the_rows_that_are_wanted_whatever_is_in_memory(
    tmp_path: Path, kept: recent.Recent, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = seeded(seed)
    tables = [drawn(draw, draw.randrange(1, 60)) for _ in range(8)]
    tables[2] = tables[2].drop_columns(["share", "at"])  # of before these columns were added
    files = written(tmp_path, tables)
    sizes = sorted(map(os.path.getsize, files))
    monkeypatch.setattr(recent, "SMALL", draw.choice([0, sizes[3], sizes[-1]]))
    of = {file: stored.fitted(rows, COLUMNS).to_pylist() for file, rows in zip(files, tables, strict=True)}
    for some in (files, draw.sample(files, 3), [], files):
        every = sorted(repr(row) for file in some for row in of[file])
        assert rows_of(some) == every
        placed = [(row["__file"], row["file_row_number"]) for row in located(some)]
        assert sorted(placed) == sorted((file, at) for file in some for at in range(len(of[file])))
        names = draw.choice([["id"], ["n", "at"], ["amount", "id"], ["at", "share"], ["_source"], ["n"]])
        asked = drawn(draw, 5).select(names)
        on = " AND ".join(f"there.{name} IS NOT DISTINCT FROM asked.{name}" for name in names)
        query = f"SELECT there.* FROM there SEMI JOIN asked ON {on}"
        wanted = [{name: asked[name] for name in names}]
        found = rows_of(some, query, asked=asked)
        assert rows_of(some, query, asked=asked, wanted=wanted) == found
        assert held(some, wanted) in (None, found)
        if len(names) == 1 and names[0] in ("id", "n") and sizes[-1] <= recent.SMALL:
            assert held(some, wanted) == found


def held(files: list[str], wanted: list[scan.Wanted]) -> list[str] | None:
    """Those that are wanted, where they are in memory and no others are given."""
    with scratch.connection() as connection:
        rows = scan.scan(connection, COLUMNS, files, wanted).rows
        return None if rows is None else sorted(map(repr, rows.to_pylist()))


def located(files: list[str]) -> list[dict[str, Any]]:
    with scratch.connection() as connection:
        found = scan.scan(connection, COLUMNS, files, place=True)
        return database.table(connection, f"FROM {found.sql}", found.parameters).to_pylist()


def test_of_several_that_are_wanted_each_is_enough(tmp_path: Path, kept: recent.Recent) -> None:
    rows = pa.table({"n": [1, 2, 3, None], "id": ["a", "b", "c", "d"]}).cast(
        pa.schema([COLUMNS.field(n) for n in ("n", "id")])
    )
    (file,) = written(tmp_path, [rows])
    wanted = [{"n": pa.array([1, None], pa.int32())}, {"id": pa.array(["c"])}, {"none": pa.array([7])}]
    assert len(rows_of([file], wanted=wanted[:2])) == 3
    assert len(rows_of([file], wanted=wanted)) == 4  # a column that rows have not tells nothing


def test_a_file_that_is_another_is_read_anew(tmp_path: Path, kept: recent.Recent) -> None:
    draw = seeded(1)
    one, other = drawn(draw, 20), drawn(draw, 21)
    (file,) = written(tmp_path, [one])
    assert len(rows_of([file])) == 20 and kept.find(file) is not None
    written(tmp_path, [other])
    assert kept.find(file) is None and len(rows_of([file])) == 21
    os.truncate(file, os.path.getsize(file) - 9)
    with pytest.raises(DamageError, match=r"0\.parquet"):
        rows_of([file])
    os.unlink(file)
    with pytest.raises(Exception, match=r"0\.parquet"):
        rows_of([file])


def test_memory_has_those_that_were_read_last(tmp_path: Path) -> None:
    draw = seeded(2)
    files = written(tmp_path, [drawn(draw, 50) for _ in range(6)])
    sizes = [len(recent._stream(pq.read_table(file))) for file in files]
    kept = recent.Recent(most=4 * min(sizes) - 1)
    for file in (*files[:3], files[0], files[3]):
        kept.rows(file, pq.read_table)
    assert [kept.find(file) is not None for file in files] == [True, False, True, True, False, False]
    few = recent.Recent(most=min(sizes) - 1)
    assert len(few.rows(files[0], pq.read_table)) == 50 and few.find(files[0]) is None


def test_a_number_that_is_too_large_for_a_column_is_in_no_row_of_it() -> None:
    rows = pa.table({"id": pa.array([1, 2, None], pa.int32())})
    for large in (5_000_000_000, -(2**31) - 1):
        wanted = pa.chunked_array([pa.array([2, large], pa.int64())])
        assert scan.alike(rows, [{"id": wanted}]).to_pylist() == [False, True, False]
        assert scan.alike(rows, [{"id": pa.array([large, None], pa.int64())}]).to_pylist()[2] is True
    edges = pa.array([2**31 - 1, -(2**31)], pa.int64())
    assert stored.fits(edges, pa.int32()).to_pylist() == [True, True]
    assert stored.fits(pa.array(["a"]), pa.int32()).to_pylist() == [True]
