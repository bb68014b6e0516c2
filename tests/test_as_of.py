"""Joins with the version of a row that was valid at a time: they are corrected by versions that come late."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_change_data import CHANGES, FILES, FROM, Change, drawn, history

import headwater as hw
from headwater import query
from headwater.errors.several import SeveralErrors
from headwater.flows import computed
from headwater.project import sql
from headwater.project.definitions import Table
from headwater.testing import Project

ORDERS = """CREATE STREAMING TABLE orders TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'nr INT, id INT, at INT'
) AS SELECT nr, id, at, _source, ingested_at FROM STREAM bronze.orders"""
VERSIONED = {
    **FILES,
    "bronze/raw.py": FILES["bronze/raw.py"] + 'orders = hw.topic("orders")\n',
    "silver/changes.sql": CHANGES,
    "silver/orders.sql": ORDERS,
    "silver/versions.sql": f"CREATE STREAMING TABLE versions FLOW AUTO CDC {FROM} COLUMNS id, a, b "
    "STORED AS SCD TYPE 2",
}
JOINED = """CREATE MATERIALIZED VIEW {name} TBLPROPERTIES (
  'headwater.keys' = 'nr', 'headwater.refresh' = 'incremental strict'
) AS SELECT o.nr, v.a, v.b FROM silver.orders o
{kind} JOIN silver.versions FOR SYSTEM_TIME AS OF o.at AS v ON o.id = v.id
WHERE o.nr >= 0"""


def parsed(tmp_path: Path, text: str) -> str:
    path = tmp_path / "t.sql"
    path.write_text(text, encoding="utf-8")
    (found,) = sql.parse(path, "gold")
    assert isinstance(found, Table) and found.sql is not None
    return " ".join(found.sql.text.split())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "FROM o JOIN v FOR SYSTEM_TIME AS OF o.t AS w ON o.k = w.k OR o.x WHERE o.y",
            "ON (`w`.__START_AT <= o.t AND (`w`.__END_AT IS NULL OR o.t < `w`.__END_AT)) AND "
            "( o.k = w.k OR o.x) WHERE o.y",
        ),
        (
            "FROM o LEFT JOIN v FOR SYSTEM_TIME AS OF (o.t + 1) ON left(o.k, 1) = v.k "
            "LEFT JOIN u ON u.k = v.k",
            "ON (`v`.__START_AT <= (o.t + 1) AND (`v`.__END_AT IS NULL OR (o.t + 1) < `v`.__END_AT)) AND "
            "( left(o.k, 1) = v.k) LEFT JOIN",
        ),
        (
            "FROM o JOIN v FOR SYSTEM_TIME AS OF o.t AS w "
            "ON o.window = w.window AND o.order = w.offset LIMIT 1",
            "ON (`w`.__START_AT <= o.t AND (`w`.__END_AT IS NULL OR o.t < `w`.__END_AT)) AND "
            "( o.window = w.window AND o.order = w.offset) LIMIT 1",
        ),
        (
            "FROM (SELECT * FROM o JOIN v SYSTEM_TIME AS OF date(o.t) w ON o.k = w.k) q",
            "ON (`w`.__START_AT <= date(o.t) AND (`w`.__END_AT IS NULL OR date(o.t) < `w`.__END_AT)) AND "
            "( o.k = w.k)) q",
        ),
    ],
)
def test_it_is_a_condition_of_the_join(tmp_path: Path, text: str, wanted: str) -> None:
    found = parsed(tmp_path, f"CREATE MATERIALIZED VIEW t AS SELECT 1 AS x {text}")
    assert wanted in found and "SYSTEM_TIME" not in found


@pytest.mark.parametrize(
    "text", ["FROM v FOR SYSTEM_TIME AS OF o.t", "FROM o JOIN v FOR SYSTEM_TIME AS OF o.t USING (k)"]
)
def test_it_stands_at_a_join(tmp_path: Path, text: str) -> None:
    with pytest.raises(SeveralErrors, match=r"t\.sql:2: .*write JOIN table") as refused:
        parsed(tmp_path, f"CREATE MATERIALIZED VIEW t AS\nSELECT 1 AS x {text};\nCREATE VIEW v AS SELECT 1")
    assert refused.value.errors[0].code == "STATEMENT_NOT_SUPPORTED"


def test_a_version_that_comes_late_corrects_what_was_joined(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(computed, "WHOLE", -1)
    inner = JOINED.format(name="v_inner", kind="inner")
    files = {
        **VERSIONED,
        **{f"gold/{kind}.sql": JOINED.format(name=f"v_{kind}", kind=kind) for kind in ("left", "inner")},
        "gold/ends.sql": inner.replace("v_inner", "v_ends").replace("v.b", "v.__END_AT AS until"),
        "gold/open.sql": inner.replace("v_inner", "v_open") + " AND v.__END_AT IS NULL",
    }
    project = Project(files, tmp_path, spark=interpreted)
    changes: dict[int, list[Change]] = {key: [] for key in range(6)}
    orders: dict[int, tuple[int, int]] = {}
    for _ in range(5):
        new = [(draw.randrange(6), change) for change in drawn(draw, 6)]
        for key, change in new:
            changes[key].append(change)
        fresh = {len(orders) + at: (draw.randrange(7), draw.randint(0, 5)) for at in range(4)}
        orders |= fresh
        project.send("changes", [change.record(key) for key, change in new])
        project.send("orders", [{"nr": nr, "id": key, "at": at} for nr, (key, at) in fresh.items()])
        project.step()
        known = [
            (nr, row)
            for nr, (key, at) in orders.items()
            for row in history(changes.get(key, []), "", "ab")
            if row[2] <= at and (row[3] is None or at < row[3])
        ]
        then = {(nr, row[0], row[1]) for nr, row in known}
        assert {*project.rows("gold.v_inner")} == then
        assert {*project.rows("gold.v_ends")} == {(nr, row[0], row[3]) for nr, row in known}
        assert {*project.rows("gold.v_open")} == {(nr, row[0], row[1]) for nr, row in known if row[3] is None}
        alone = {(nr, None, None) for nr in orders if nr not in {row[0] for row in then}}
        assert {*project.rows("gold.v_left")} == then | alone
    assert any(batch.keys_touched for batch in project.batches("gold.v_left"))
    for name, sole in (("inner", True), ("left", True), ("ends", False), ("open", False)):
        reach = project.tables[f"gold.v_{name}"].reach
        assert reach is not None
        hops = [hop for touch in reach.touches.values() for way in touch.columns.values() for hop in way.hops]
        assert [hop.within.sole for hop in hops if hop.within is not None] == [sole], name


def test_a_streaming_table_is_corrected_where_it_reads_versions_as_a_stream(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    told = """CREATE STREAMING TABLE {name} {keys} AS SELECT o.nr, v.a FROM STREAM silver.orders o
    LEFT JOIN {stream} silver.versions FOR SYSTEM_TIME AS OF o.at AS v ON o.id = v.id"""
    files = {
        **VERSIONED,
        "gold/corrected.sql": told.format(
            name="corrected", keys="TBLPROPERTIES ('headwater.keys' = 'nr')", stream="STREAM"
        ),
        "gold/known.sql": told.format(name="known", keys="", stream=""),
    }
    project = Project(files, tmp_path, spark=interpreted)
    project.send("changes", [Change(1, False, 10, None).record(1)])
    project.send("orders", [{"nr": 1, "id": 1, "at": 5}, {"nr": 2, "id": 2, "at": 5}]).step()
    first = [(1, 10), (2, None)]
    assert project.rows("gold.corrected") == project.rows("gold.known") == first
    late = [Change(3, False, 11, None).record(1), Change(2, False, 20, None).record(2)]
    project.send("changes", late).step()
    project.send("orders", [{"nr": 3, "id": 1, "at": 2}]).step()
    assert project.rows("gold.corrected") == [(1, 11), (2, 20), (3, 10)]
    assert project.rows("gold.known") == [*first, (3, 10)]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_query_sees_the_rows_that_were_valid(
    spark: SparkSession, tmp_path: Path, engine: query.Engine
) -> None:
    said = f"CREATE STREAMING TABLE v FLOW AUTO CDC {FROM} COLUMNS id, a STORED AS SCD TYPE 2"
    files = {**FILES, "silver/v.sql": said}
    project = Project(files, tmp_path, spark=spark)
    sent = [Change(1, False, 1, None), Change(3, False, 2, None), Change(5, True, None, None)]
    project.send("changes", [change.record(7) for change in sent])
    project.step()

    def found(as_of: str, sql: str = "SELECT a FROM silver.v") -> list[tuple[object, ...]]:
        return query.run(sql, project=tmp_path, engine=engine, as_of=as_of).rows

    assert [found(at) for at in "012345"] == [[], [(1,)], [(1,)], [(2,)], [(2,)], []]

    def asked(sql: str) -> list[tuple[object, ...]]:
        return query.run(sql, project=tmp_path, engine=engine).rows

    then = f"SELECT v.a, n.a FROM {hw.as_of('silver.v', 2)} v, {hw.as_of('silver.v', '4')} n"
    assert asked(then) == [(1, 2)]
    assert "TIMESTAMP '2026-05-01 00:00:00.000000'" in hw.as_of("silver.v", datetime(2026, 5, 1, tzinfo=UTC))
    with raises_code("TIME_INVALID", match="as_of"):
        hw.as_of("silver.v", "yesterday")
    with raises_code("UNKNOWN_TABLE", match="no name of a table"):
        hw.as_of("silver.v; DROP", 1)
    with raises_code("NO_HISTORY", match="silver.changes"):
        found("1", "SELECT * FROM silver.changes")
    with raises_code("TIME_INVALID", match="--as-of"):
        found("yesterday")
    with raises_code(
        "TIME_INVALID",
        match="is not a whole number, and silver.v has its history by values of type integer",
        table="silver.v",
    ):
        found("2026-05-01")


def test_a_history_by_times_is_asked_for_a_time(interpreted: SparkSession, tmp_path: Path) -> None:
    said = f"CREATE STREAMING TABLE v FLOW AUTO CDC {FROM} COLUMNS id, a STORED AS SCD TYPE 2"
    timed = said.replace("SEQUENCE BY seq", "SEQUENCE BY timestamp_seconds(seq)")
    assert timed != said
    project = Project({**FILES, "silver/v.sql": timed}, tmp_path, spark=interpreted)
    project.send("changes", [Change(3, False, 1, None).record(7)]).step()
    assert query.run("SELECT a FROM silver.v", project=tmp_path, as_of="1970-01-01T00:00:03Z").rows == [(1,)]
    with raises_code(
        "TIME_INVALID",
        match="is not a time, and silver.v has its history by values of type timestamp",
        table="silver.v",
    ):
        query.run("SELECT a FROM silver.v", project=tmp_path, as_of="3")


def test_a_table_without_a_history_is_told(interpreted: SparkSession, tmp_path: Path) -> None:
    joined = JOINED.format(name="t", kind="LEFT").replace("silver.versions", "silver.changes")
    with raises_code("DEFINITION_FAILED", match="FOR SYSTEM_TIME AS OF stands at a table with a history"):
        assert Project({**VERSIONED, "gold/t.sql": joined}, tmp_path, spark=interpreted).tables
