"""NaN is greater than all other numbers, and found by who looks for these: in every file that is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import GONE, Target

COLUMNS = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("f", pa.float32())])
NAN = float("nan")
ROWS = [(1, 0.5), (2, NAN), (3, 0.25)]


def table(tmp_path: Path) -> Target:
    return Target(Lake(tmp_path).create("gold.t", COLUMNS, comment="", properties={}))


def rows(some: list[tuple[int, float]]) -> pa.Table:
    keys, values = zip(*some, strict=True)
    return pa.table([keys, values, values], schema=COLUMNS)


def identity(sequence: int) -> Identity:
    return Identity(flow="gold.t", generation=1, sequence=sequence, consumed={})


def appended(target: Target) -> None:
    target.append(target.write(rows(ROWS), "b"), identity(1))


def put(target: Target) -> None:
    target.append(target.put([rows(ROWS)], "b"), identity(1))


def changed(target: Target) -> None:
    gone = pa.array([False] * len(ROWS))
    target.change(rows([(1, 7.0), (2, NAN), (3, 0.25)]).append_column(GONE, gone), ["k"], identity(1))
    target.change(rows(ROWS[:1]).append_column(GONE, gone[:1]), ["k"], identity(2))


@pytest.mark.parametrize("fill", [appended, put, changed])
def test_it_is_found_by_spark_and_duckdb(
    interpreted: SparkSession, tmp_path: Path, fill: Callable[[Target], None]
) -> None:
    target = table(tmp_path)
    fill(target)
    for column in ("x", "f"):
        for condition in (f"{column} > 1", f"{column} >= 1", f"{column} <> 0.5 AND {column} <> 0.25"):
            found: Any = duckdb.execute(f"SELECT k FROM read_parquet($1) WHERE {condition}", [target.files()])
            assert found.fetchall() == [(2,)], condition
            frame = interpreted.read.parquet(*target.files()).where(condition)
            assert [row.k for row in frame.collect()] == [2], condition
