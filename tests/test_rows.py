"""A batch of few rows and one of many take different ways through Spark: what comes out is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import one_batch
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from raising import raises_code

from headwater.connectors import decode
from headwater.connectors.decode.contract import Fields
from headwater.errors import NOWHERE
from headwater.flows import ranged
from headwater.flows.rows import FEW, FEW_BYTES, MANY, FewRows, ManyRows, Rows, are_few, can_be_held, read
from headwater.flows.work import Work
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Contract, Json
from headwater.quality.quarantine import HELD, Quarantine
from headwater.runtime import jvm, sessions
from headwater.storage import stored
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.testing import Project

DDL = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE, dec DECIMAL(38,10), "
    "small DECIMAL(9,2), s STRING, bin BINARY, day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, "
    "tags ARRAY<STRING>, place STRUCT<site: STRING, since: TIMESTAMP, xy: ARRAY<DOUBLE>>, "
    "attrs MAP<STRING, BIGINT>, `a b.c` INT"
)
EXTREMES: list[dict[str, Any]] = [
    {},
    {
        "b": True,
        "i8": -128,
        "i16": 32767,
        "i32": -(2**31),
        "i64": 2**63 - 1,
        "f": float("inf"),
        "d": float("-inf"),
        "dec": Decimal("1234567890123456789012345678.0123456789"),
        "small": Decimal("-9999999.99"),
        "s": "héé\U0001f30a\x00",
        "bin": b"\xff\x00",
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "ntz": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "tags": ["a", None, ""],
        "place": {"site": None, "since": datetime(1582, 10, 4, 12, tzinfo=UTC), "xy": [float("nan"), -0.0]},
        "attrs": [("k", 1), ("", None)],
        "a b.c": 7,
    },
    {
        "d": float("nan"),
        "f": -0.0,
        "s": "",
        "bin": b"",
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "ntz": datetime(1883, 11, 18, 12, 3, 57),
        "tags": [],
        "place": {"site": "x", "since": None, "xy": None},
        "attrs": [],
    },
]


Function = Callable[[DataFrame], DataFrame]


def both(
    spark: SparkSession,
    file: Path,
    columns: StructType,
    schema: Fields | None,
    function: Function = lambda rows: rows,
) -> list[Rows]:
    work = Work(spark, columns, schema, function)
    return [FewRows(work, read([str(file)], columns)), ManyRows(work, [str(file)], 10)]


def written(target: Target, rows: Rows, sequence: int) -> tuple[list[str], pa.Table]:
    """What a batch writes: its files, and its rows as Spark reads them."""
    files = target.write(rows.passed(), str(sequence))
    session = SparkSession.getActiveSession()
    assert session is not None
    read = session.read.schema(rows.result.schema)
    return files, read.parquet(*[str(target.place.path / f) for f in files]).toArrow()


def target(folder: Path, columns: pa.Schema) -> Target:
    return Target(
        Lake(folder).create("silver.t", columns, properties={"delta.feature.timestampNtz": "supported"})
    )


def test_every_type_comes_out_as_it_went_in_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    columns = jvm.ddl(DDL)
    arrow = stored.schema(columns)
    file = tmp_path / "in.parquet"
    whole = dict.fromkeys(arrow.names)
    spark.createDataFrame(
        pa.Table.from_pylist([{**whole, **row} for row in EXTREMES], arrow), columns
    ).coalesce(1).write.parquet(str(file))
    file = next(file.glob("*.parquet"))
    table = target(tmp_path / "lake", arrow)
    results, texts = [], []
    for at, rows in enumerate(both(spark, file, columns, None)):
        files, result = written(table, rows, at)
        results.append(result.cast(arrow))
        assert rows.counts().malformed == 0
        again = pq.read_table(table.place.path / files[0]).cast(arrow)
        texts.append([repr(row) for row in again.to_pylist()])
    few, many = ([repr(row) for row in result.to_pylist()] for result in results)
    assert few == many == texts[0] == texts[1]
    inserted = pa.Table.from_pylist([{**whole, **row} for row in EXTREMES], arrow)
    assert few == [repr(row) for row in inserted.to_pylist()]


def test_functions_and_joins_give_the_same_rows_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    columns = jvm.ddl("host STRING, usage DOUBLE")
    file = tmp_path / "in.parquet"
    pq.write_table(pa.table({"host": ["a", "b", None, "a"], "usage": [1.0, 2.0, 3.0, None]}), file)
    sites = spark.createDataFrame([("a", "x"), ("c", "y")], "host STRING, site STRING")
    twice = F.udf(lambda value: None if value is None else value * 2, "double")
    found = []

    def function(rows: DataFrame) -> DataFrame:
        joined = rows.join(sites, "host", "left").withColumn("twice", twice("usage"))
        return joined.groupBy("host", "site").agg(F.sum("twice").alias("n"))

    for rows in both(spark, file, columns, None, function):
        out = rows.passed()
        found.append(sorted(map(repr, (out if isinstance(out, pa.Table) else out.toArrow()).to_pylist())))
    assert found[0] == found[1] and len(found[0]) == 3


VALUES = [b'{"a": 1}', None, b'{"a": "x"}', b'{"a": null}', b"\xff", b'{"a": 2, "b": 3}']


def bronze(file: Path, values: list[bytes | None]) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    rows = [
        {
            "key": b"k" if at % 2 else None,
            "value": value,
            "topic": "t",
            "partition": at % 2,
            "offset": at,
            "timestamp": now,
            "headers": [{"key": "h", "value": b"v"}] if at else None,
            "cluster": "c",
            "ingested_at": now,
        }
        for at, value in enumerate(values)
    ]
    pq.write_table(pa.Table.from_pylist(rows, stored.schema(BRONZE)), file)


@pytest.mark.parametrize("values", [VALUES, VALUES[:1], VALUES[1:2]], ids=["mixed", "good", "malformed"])
@pytest.mark.parametrize(("contract", "most"), [("evolve", 10_000), ("quarantine", 10_000), ("evolve", 1)])
def test_decoded_rows_and_rejects_are_the_same_both_ways(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: list[bytes | None],
    contract: Contract,
    most: int,
) -> None:
    """Malformed rows are told one by one, or where they are more than that, decoded once more."""
    monkeypatch.setattr(decode, "MOST", most)
    bronze(tmp_path / "in.parquet", values)
    schema = decode.fields(Json("a BIGINT", contract), NOWHERE)
    table = target(tmp_path / "lake", stored.schema(decode.columns(schema, BRONZE)))
    found: list[Any] = []
    for at, rows in enumerate(both(spark, tmp_path / "in.parquet", BRONZE, schema)):
        _, good = written(table, rows, at)
        bad = rows.held("2026-02-03T04:05:06.000007+00:00")
        bad = bad if isinstance(bad, pa.Table) else bad.toArrow()
        assert bad.schema.names == HELD.fieldNames()
        counts = rows.counts()
        assert counts.taken == len(values) == len(good) + counts.malformed
        assert counts.malformed == len(bad)
        found.append((good.to_pylist(), sorted(bad.to_pylist(), key=lambda row: row["offset"])))
    assert found[0] == found[1]
    assert all(row["value"] == values[row["offset"]] and row["reason"] for row in found[0][1])


def test_a_frozen_contract_stops_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    bronze(tmp_path / "in.parquet", VALUES)
    schema = decode.fields(Json("a BIGINT", "freeze"), NOWHERE)
    table = target(tmp_path / "lake", stored.schema(decode.columns(schema, BRONZE)))
    said = []
    for at, rows in enumerate(both(spark, tmp_path / "in.parquet", BRONZE, schema)):
        written(table, rows, at)
        with raises_code("CONTRACT_BROKEN", match=r"Column\(/a\) .* offset 2; 2 such records") as stopped:
            rows.counts()
        said.append(str(stopped.value))
    assert said[0] == said[1] and table.version == 0


def test_files_of_a_batch_of_many_rows_follow_the_order_of_its_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, offset = list[str](), 0
    for at, count in enumerate((1_000, 30_000, 1_000, 30_000)):
        files.append(str(tmp_path / f"{at}.parquet"))
        pq.write_table(pa.table({"offset": range(offset, offset + count)}), files[-1])
        offset += count
    columns = StructType().add("offset", "long")
    session = sessions.child(spark, parallelism=2)
    session.conf.set(
        "spark.sql.files.maxPartitionBytes", str(6 << 20)
    )  # by which Spark packs one into each task
    rows = ManyRows(Work(session, columns, None, lambda rows: rows), files, offset)
    table = target(tmp_path / "lake", stored.schema(columns))
    written = table.write(rows.passed(), "0")
    held = [
        pq.read_table(table.place.path / file, partitioning=None)["offset"].to_pylist() for file in written
    ]
    assert len(held) > 1 and [at for file in held for at in sorted(file)] == list(range(offset))


@pytest.mark.torture
@pytest.mark.parametrize("value", [b"{", b'{"n": -1}'], ids=["malformed", "failing an expectation"])
def test_half_a_million_rows_that_are_held_back_take_little_more_memory_than_a_few(
    tmp_path: Path, value: bytes
) -> None:
    """Of this process, in MB; of Java, which has 2 GB of heap by default, that it ends well."""
    found = []
    for count in (20_000, 500_000):
        one_batch.fill(tmp_path / str(count), value, count)
        command = [sys.executable, one_batch.__file__, str(tmp_path / str(count))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
        print(found[-1])
        assert [found[-1][each] for each in ("taken", "quarantined", "held")] == [count] * 3
    few, many = found
    assert many["python"] < few["python"] + 150 and many["java"] < 3_000


def test_rows_are_few_by_number_and_by_bytes(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x")
    assert are_few([str(file)], FEW)
    assert not are_few([str(file)], FEW + 1)
    file.write_bytes(b"x" * (FEW_BYTES // 2 + 1))
    assert are_few([str(file)], FEW)
    assert not are_few([str(file), str(file)], FEW)


def test_rows_can_be_held_by_number_and_by_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"value": ["x" * 1000] * 100}), file, use_dictionary=False)
    assert can_be_held([file], MANY) and not can_be_held([file], MANY + 1)
    monkeypatch.setattr("headwater.flows.rows.MANY_BYTES", 150_000)
    assert can_be_held([file], 100) and not can_be_held([file, file], 200)


JUDGED = """CREATE STREAMING TABLE {name}
TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = 'n BIGINT')
AS SELECT n, {what} AS made, _source, ingested_at FROM STREAM bronze.raw"""
COUNTED = (
    "CREATE STREAMING TABLE {} AS SELECT {} AS n, count(*) AS rows FROM STREAM silver.plain GROUP BY ALL"
)
PASSING = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/plain.sql": JUDGED.format(name="plain", what="n * 2"),
    "silver/divided.sql": JUDGED.format(name="divided", what="10 DIV n"),
    "silver/named.sql": JUDGED.format(name="named", what="upper(CAST(n AS STRING))"),
    "gold/counted.sql": COUNTED.format("counted", "n"),
    "gold/spelled.sql": COUNTED.format("spelled", "upper(CAST(n AS STRING))"),
    **{
        f"quality/silver.{name}.json": json.dumps(
            {
                "name": f"silver.{name}",
                "expectations": [
                    {
                        "type": "expect_column_values_to_be_between",
                        "kwargs": {"column": "n", "max_value": 90},
                        "meta": {"action": "quarantine"},
                    }
                ],
            }
        )
        for name in ("plain", "divided", "named")
    },
}


def test_many_rows_pass_through_this_process_where_duckdb_computes_what_is_made_of_them(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not translated, and what DuckDB refuses of a batch, is Spark's, also as more of it is held back
    than is told one by one."""
    ways: list[str] = []

    def noting(way: type[Any]) -> Callable[..., Any]:
        def made(work: Work, *rest: Any, many: bool = False, **more: Any) -> Any:
            if way is ManyRows or many:
                ways.append(way.__name__)
            return way(work, *rest, **more) if way is ManyRows else way(work, *rest, many=many, **more)

        return made

    monkeypatch.setattr("headwater.flows.rows.FEW", 2)
    monkeypatch.setattr(ranged, "FewRows", noting(FewRows))
    monkeypatch.setattr(ranged, "ManyRows", noting(ManyRows))
    project = Project(PASSING, tmp_path, spark=interpreted)

    def taken(table: str) -> list[str]:
        ways.clear()
        project.step(table)
        return list(ways)

    def send(*numbers: int | None) -> None:
        project.send("raw", [{"n": n} if n is not None else b"{" for n in numbers])

    here, spark = ["FewRows"], ["ManyRows"]
    send(1, 2, None, 95, 4)
    assert [taken(f"silver.{name}") for name in ("plain", "divided", "named")] == [here, here, spark]
    assert (taken("gold.counted"), taken("gold.spelled")) == (here, spark)
    send(1, 0, 2)  # which 10 is not divided by
    assert [taken(f"silver.{name}") for name in ("plain", "divided", "named")] == [
        here,
        [*here, *spark, *spark],
        spark,
    ]
    assert (taken("gold.counted"), taken("gold.spelled")) == (here, spark)
    monkeypatch.setattr(decode, "MOST", 1)
    send(None, None, 3)
    send(91, 92, 3)
    for name in ("plain", "divided", "named"):
        project.step(f"silver.{name}")
    send(5, 6, 7)
    assert taken("silver.plain") == here
    project.step()
    numbers = [1, 2, 4, 1, 0, 2, 3, 3, 5, 6, 7]
    silver = {
        name: sorted(row[:2] for row in project.rows(f"silver.{name}"))
        for name in ("plain", "divided", "named")
    }
    assert silver == {
        "plain": sorted((n, n * 2) for n in numbers),
        "divided": sorted((n, 10 // n) for n in numbers if n),
        "named": sorted((n, str(n)) for n in numbers),
    }
    counted = sorted(project.rows("gold.counted"))
    assert [row[:2] for row in counted] == sorted(Counter(numbers).items())
    held = {name: len(Quarantine(project.lake, f"silver.{name}").places()) for name in silver}
    assert held == {"plain": 6, "divided": 7, "named": 6}


@pytest.mark.parametrize(("most", "way"), [(10, "FewRows"), (1, "ManyRows")])
def test_many_rows_are_joined_here_with_a_small_table_alone(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, way: str
) -> None:
    ways = []
    for each in (FewRows, ManyRows):
        made = each.__init__

        def noting(self: Any, *rest: Any, made: Any = made, **more: Any) -> None:
            made(self, *rest, **more)
            ways.append((type(self).__name__, len(rest)))

        monkeypatch.setattr(each, "__init__", noting)
    monkeypatch.setattr("headwater.flows.rows.FEW", 2)
    monkeypatch.setattr("headwater.flows.references._MOST", most)
    placed = """CREATE STREAMING TABLE placed
TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = 'n BIGINT')
AS SELECT r.n, s.name, r._source, r.ingested_at
FROM STREAM bronze.raw r LEFT JOIN reference.names s ON r.n = s.n"""
    files = {
        **{name: PASSING[name] for name in ("conf/local.yaml", "bronze/raw.py")},
        "silver/placed.sql": placed,
        "conf/reference/names.csv": "n,name\n1,one\n2,two\n",
        "conf/reference/names.ddl": "n BIGINT, name STRING",
    }
    project = Project(files, tmp_path, spark=interpreted)
    project.send("raw", [{"n": n} for n in (1, 2, 3)])
    rows = project.step("silver.placed").rows("silver.placed")
    assert sorted(row[:2] for row in rows) == [(1, "one"), (2, "two"), (3, None)]
    assert ways[-1][0] == way
