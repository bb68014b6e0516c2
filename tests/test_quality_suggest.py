"""A suggested suite is one that the engine takes, and that the table it was made from meets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli import app
from headwater.operations.validation import suggest, validate
from headwater.project import suite
from headwater.project.load import Project, load_project
from headwater.quality import predicate
from headwater.query import on_spark
from headwater.query.sources import Source
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

SILVER = '''import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("host STRING, usage DOUBLE"))
def readings(raw):
    """One row per reading."""
    return raw
'''
GOLD = """CREATE STREAMING TABLE gold.by_host AS
SELECT host, upper(host) AS name, avg(usage) AS usage
FROM STREAM silver.readings GROUP BY host, upper(host)"""
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "host": (pa.string(), ["it's", "b", "é"]),
    "serial": (pa.string(), [f"sn-{n}" for n in range(60)]),
    "remark": (pa.string(), [f"{'x' * n} {n}" for n in range(60)]),
    "nothing": (pa.string(), [None]),
    "usage": (pa.float64(), [0.5, 97.3, None]),
    "odd": (pa.float64(), [1.0, math.nan, math.inf]),
    "count": (pa.int64(), list(range(-30, 30))),
    "kind": (pa.int32(), [1, 2, 12]),
    "price": (pa.decimal128(12, 2), [Decimal("-0.07"), Decimal("1234.56")]),
    "on": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(2026, 1, 1)]),
    "at": (pa.timestamp("us", tz="UTC"), [datetime(2026, 1, 1, tzinfo=UTC)]),
    "raw": (pa.binary(), [b"\xff", b"{"]),
    "tags": (pa.list_(pa.string()), [["a"], []]),
    "place": (pa.struct([("lat", pa.float64())]), [{"lat": 1.0}]),
    'it\'s "odd"': (pa.int32(), [1]),
    "a.b": (pa.int32(), [1]),
}
ROWS = 60


def append(root: Path, name: str, rows: pa.Table, **properties: str) -> None:
    """Commit rows to a table of the project's lake."""
    target = Target(Lake(root / ".headwater" / "lake").create(name, rows.schema, properties=properties))
    folder = target.place.path / "000000000000-test"
    folder.mkdir()
    pq.write_table(rows, folder / "part.parquet")
    target.append([f"{folder.name}/part.parquet"], Identity(name, 1, 0, {}))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("project")
    for folder in ("bronze", "silver", "gold", "conf"):
        (root / folder).mkdir()
    (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
    (root / "bronze" / "raw.py").write_text(
        "import headwater as hw\nraw = hw.topic('raw')\nempty = hw.topic('empty')\n"
    )
    (root / "silver" / "readings.py").write_text(SILVER)
    (root / "gold" / "by_host.sql").write_text(GOLD)
    columns = {
        name: pa.array([values[n % len(values)] for n in range(ROWS)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    append(root, "silver.readings", pa.table(columns))
    gold = {"host": ["a", "b"], "name": ["A", "B"], "usage": [1.5, 2.5], "_partial": [{"n": 1}, {"n": 2}]}
    append(root, "gold.by_host", pa.table(gold), **{"delta.enableChangeDataFeed": "true"})
    Lake(root / ".headwater" / "lake").create("bronze.empty", pa.schema([("a", pa.int64())]), properties={})
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield load_project(root)
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def silver(project: Project) -> dict[str, Any]:
    return suggest.suggest(project, "silver.readings")


@pytest.fixture(scope="module")
def gold(project: Project) -> dict[str, Any]:
    return suggest.suggest(project, "gold.by_host")


def kwargs(found: dict[str, Any], column: str) -> dict[str, dict[str, Any]]:
    """{type → arguments} of the expectations about a column, without the column."""
    return {
        one["type"].removeprefix("expect_column_"): {k: v for k, v in one["kwargs"].items() if k != "column"}
        for one in found["expectations"]
        if one["kwargs"].get("column") == column
    }


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("host", {"values_to_be_in_set": {"value_set": ["b", "it's", "é"]}}),
        ("serial", {"values_to_match_regex": {"regex": "^[A-Za-z]+-[0-9]+$"}}),
        ("remark", {"value_lengths_to_be_between": {"min_value": 1, "max_value": 62}}),
        ("usage", {"values_to_be_between": {"min_value": 0.5, "max_value": 98}}),
        ("odd", {}),
        ("count", {"values_to_be_between": {"min_value": -30}}),
        ("kind", {"values_to_be_between": {"min_value": 1, "max_value": 12}}),
        ("price", {"values_to_be_between": {"min_value": -0.07, "max_value": 1300}}),
        ("nothing", {}),
        ("raw", {}),
        ('it\'s "odd"', {"values_to_be_between": {"min_value": 1, "max_value": 1}}),
        ("tags", {}),
    ],
)
def test_what_was_seen_is_expected(silver: dict[str, Any], column: str, wanted: dict[str, Any]) -> None:
    found = kwargs(silver, column)
    assert found.pop("values_to_be_of_type")["type_"].endswith("Type")
    assert (found.pop("values_to_not_be_null", None) is None) == (column in ("usage", "nothing"))
    assert found == wanted


def test_everything_is_a_warning_and_says_what_was_seen(silver: dict[str, Any], gold: dict[str, Any]) -> None:
    for one in [*silver["expectations"], *gold["expectations"]]:
        assert one["severity"] == "warning" and one["notes"].startswith("Seen: ") and "meta" not in one
    assert "a.b" not in {one["kwargs"].get("column") for one in silver["expectations"]}
    notes = " ".join(one["notes"] for one in silver["expectations"])
    assert "min 0.5, max 97.3 in 40 rows" in notes and "60 rows, no NULL" in notes


def test_a_whole_table_is_told_apart_by_its_keys(gold: dict[str, Any]) -> None:
    of_table = {one["type"]: one["kwargs"] for one in gold["expectations"] if "column" not in one["kwargs"]}
    assert of_table == {
        "expect_table_row_count_to_be_between": {"min_value": 1},
        "expect_compound_columns_to_be_unique": {"column_list": ["host", "name"]},
    }
    assert "_partial" not in json.dumps(gold)


def test_the_flow_takes_what_is_suggested_for_silver(
    spark: SparkSession, project: Project, silver: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "silver.readings.json"
    file.write_text(suggest.text(silver), encoding="utf-8")
    place = Lake(project.conf.lake).place("silver.readings")
    rows = on_spark.frame(project.conf, Source(place.name, place.path), 1)
    rules = suite.read(file).rules
    assert {rule.action for rule in rules} == {"warn"} and len(rules) == len(silver["expectations"])
    columns = StructType(rows.schema.fields)
    failing = [rows.where(predicate.failed(rule, columns)).isEmpty() for rule in rules]
    assert all(failing)


def test_the_table_meets_what_is_suggested(
    project: Project, silver: dict[str, Any], gold: dict[str, Any], tmp_path: Path
) -> None:
    for table, found in (("silver.readings", silver), ("gold.by_host", gold)):
        assert suggest.write(project, table, found) == project.root / "quality" / f"{table}.json"
        with raises_code("SUITE_EXISTS", match=rf"{table}\.json exists; without --write"):
            suggest.write(project, table, found)
    done = validate.run(load_project(project.root), docs=tmp_path / "docs")
    judged = {one.table: one.outcomes for one in done.validations}
    assert judged.keys() == {"silver.readings", "gold.by_host"}
    for outcomes in judged.values():
        assert [o for o in outcomes if o.status != "passed"] == []


def test_a_suggestion_is_printed_as_a_suite(project: Project, silver: dict[str, Any]) -> None:
    done = CliRunner().invoke(
        app, ["quality", "suggest", "silver.readings", "--project", str(project.root)], catch_exceptions=False
    )
    assert done.exit_code == 0 and json.loads(done.stdout) == silver


@pytest.mark.parametrize(
    ("table", "says"), [("bronze.raw", "holds nothing yet"), ("bronze.empty", "holds no rows")]
)
def test_nothing_follows_from_no_rows(project: Project, table: str, says: str) -> None:
    with raises_code("TABLE_EMPTY", match=rf"{table} {says}"):
        suggest.suggest(project, table)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (0, 0, 0),
        (97.3, 97, 98),
        (1234, 1200, 1300),
        (-1234, -1300, -1200),
        (0.0123, 0.012, 0.013),
        (1e-9,) * 3,
    ],
)
def test_bounds_are_rounded_outward(value: float, low: float, high: float) -> None:
    assert (suggest._outward(value, up=False), suggest._outward(value, up=True)) == (low, high)
