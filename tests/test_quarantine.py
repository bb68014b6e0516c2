"""What a quarantine holds, read without Spark: each record once, and what is open told apart at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.common import times
from headwater.operations import replay
from headwater.quality import quarantine
from headwater.quality.quarantine import HELD, RESOLVED, Quarantine
from headwater.storage import stored
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.names import quarantine_name, resolved_name
from headwater.storage.target import Target
from headwater.testing import Project

NAME = "silver.t"
WHEN = times.EPOCH + timedelta(days=20_000)


def put(lake: Lake, name: str, columns: pa.Schema, rows: Iterable[dict[str, Any]]) -> None:
    """One more commit of a table beside the one that is quarantined for."""
    target = Target(lake.create(name, columns, properties={}))
    table = pa.Table.from_pylist(list(rows), columns)
    sequence = target.last(NAME) + 1
    target.append(target.put([table], f"b{sequence}"), Identity(NAME, 1, sequence, {}))


def hold(lake: Lake, offsets: Iterable[int], rules: Callable[[int], list[str]] = lambda _: ["r"]) -> None:
    rows = (
        {"cluster": "c", "topic": "t", "partition": 0, "offset": offset, "value": b"%d" % offset}
        | {
            "rules": rules(offset),
            "reason": f"row {number}",
            "quarantined_at": WHEN + timedelta(hours=number),
        }
        for number, offset in enumerate(offsets)
    )
    put(lake, quarantine_name(NAME), stored.schema(HELD), rows)


def resolve(lake: Lake, offsets: Iterable[int]) -> None:
    place = {"cluster": "c", "topic": "t", "partition": 0, "outcome": "replayed"}
    put(lake, resolved_name(NAME), RESOLVED, ({**place, "offset": offset} for offset in offsets))


def told(tables: Iterable[pa.Table], column: str = "offset") -> list[Any]:
    return [value for table in tables for value in table[column].to_pylist()]


def test_a_table_without_a_quarantine_has_no_records(tmp_path: Path) -> None:
    held = Quarantine(Lake(tmp_path), NAME)
    assert not held.exists() and list(held.records()) == []
    assert held.summary() == quarantine.Summary(NAME, 0, 0) and held.rules() == []


def test_a_record_comes_once_however_far_its_rows_lie_apart(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    hold(lake, [7, *range(100, 6_000), 7, 8, 7], lambda offset: ["a", "b"] if offset == 7 else ["a"])
    hold(lake, [9, 7, 8])
    resolve(lake, [8, *range(100, 5_999)])
    held = Quarantine(lake, NAME)
    assert told(held.records()) == [9, 7, 5_999]  # those of the newest commit first
    assert told(held.records(), "reason") == ["row 0", "row 1", "row 5900"]
    assert told(held.records(), "value") == [b"9", b"7", b"5999"]
    assert told(held.records("b")) == [7] and told(held.records("r")) == [9, 7]
    assert told(held.records(resolved=True)) == [8, *range(100, 5_999)]
    found = held.summary()
    assert (found.records, found.open) == (5_903, 3)
    assert found.rules == {"a": 2, "b": 1, "r": 2} and found.outcomes == {"replayed": 5_900}
    assert (found.first, found.last) == (WHEN, WHEN + timedelta(hours=5_900))


def test_what_telling_records_apart_costs_grows_as_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def counted(tell: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def count(*tables: pa.Table) -> pa.Table:
            nonlocal compared
            compared += sum(map(len, tables))
            return tell(*tables)

        return count

    for name in ("once", "without", "within"):
        monkeypatch.setattr(quarantine, name, counted(getattr(quarantine, name)))
    costs = []
    for size in (10_000, 20_000):
        lake = Lake(tmp_path / str(size))
        hold(lake, range(size))
        resolve(lake, range(0, size, 2))
        compared = 0
        held = Quarantine(lake, NAME)
        assert sum(map(len, held.records())) == size // 2 == held.summary().open
        costs.append(compared)
    assert costs[1] <= 2 * costs[0], costs


@pytest.mark.parametrize("warns", [False, True])
@pytest.mark.parametrize("unique", ["drop", "quarantine"])
def test_a_row_of_a_record_that_is_not_put_back_is_no_first_one(
    interpreted: SparkSession, tmp_path: Path, unique: str, warns: bool
) -> None:
    table = """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("ks ARRAY<INT>", "quarantine"))
def s(raw):
    return raw.selectExpr("explode(ks) AS k", "_source", "ingested_at")
"""
    suite = {
        "name": "silver.s",
        "expectations": [
            {
                "type": f"expect_column_values_to_be_{kind}",
                "kwargs": {"column": "k"},
                "meta": {"action": action},
            }
            for kind, action in (("unique", unique), ("in_set", "quarantine"))
        ],
    }
    suite["expectations"][1]["kwargs"]["value_set"] = [1, 2, 3, 4]  # type: ignore[index]
    if warns:  # of every row
        suite["expectations"].append(  # type: ignore[attr-defined]
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "k", "min_value": 100},
                "meta": {"action": "warn"},
            }
        )
    files = {
        "bronze/raw.py": 'import headwater as hw\nraw = hw.topic("raw")\n',
        "silver/s.py": table,
        "quality/silver.s.json": json.dumps(suite),
    }
    project = Project(files, tmp_path, spark=interpreted)
    sent = [[1, 9], [1], [2, 1], [3, 3], [3], [2, 4]]
    project.send("raw", [{"ks": ks, "x": 0} for ks in sent]).step()
    assert project.rows("silver.s", "k") == []
    project.change("silver/s.py", '"quarantine"', '"evolve"').step()
    done = replay.resolve(project.definitions, "silver.s", "replay")
    failing = sum(rows for rule, rows in done.failing.items() if "between" not in rule)
    if unique == "drop":  # [2, 1] and [2, 4] are records of which a row is dropped
        assert (done.replayed, done.rows, done.dropped, failing) == (4, 4, 1, 1)
        assert project.rows("silver.s", "k") == [(1,), (2,), (3,), (4,)]
    else:  # [2, 1] stays, as [1] is there, so that [2, 4] is the first with its key; [3, 3] stays as well
        assert (done.replayed, done.rows, done.dropped, failing) == (3, 4, 0, 3)
        assert project.rows("silver.s", "k") == [(1,), (2,), (3,), (4,)]


def test_a_table_that_was_put_back_without_its_ledger_is_not_replayed_into(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    table = """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("k INT", "quarantine"))
def s(raw):
    return raw
"""
    files = {"bronze/raw.py": 'import headwater as hw\nraw = hw.topic("raw")\n', "silver/s.py": table}
    project = Project(files, tmp_path, spark=interpreted)
    project.send("raw", [{"k": 1}, {"k": 2, "x": 0}, {"k": 3, "x": 0}]).step()
    project.change("silver/s.py", '"quarantine"', '"evolve"').step()
    lake = Lake(project.definitions.conf.lake)
    folder = lake.place("silver.s").path.parent
    shutil.copytree(folder, tmp_path / "copy")
    assert replay.resolve(project.definitions, "silver.s", "replay").rows == 2
    assert project.rows("silver.s", "k") == [(1,), (2,), (3,)]
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    for _ in range(2):
        with raises_code("TABLE_OF_EARLIER_LIFE", table=resolved_name("silver.s")) as refused:
            replay.resolve(project.definitions, "silver.s", "replay")
        assert "headwater rebuild silver.s" in str(refused.value)
    project.rebuild("silver.s")
    assert replay.resolve(project.definitions, "silver.s", "replay").rows == 0
    assert project.rows("silver.s", "k") == [(1,), (2,), (3,)]
