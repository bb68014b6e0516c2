"""Suites are read strictly: what can't be acted on is refused, with file, place and fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import great_expectations as gx
import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors.codes import Code
from headwater.project import suite
from headwater.quality import predicate
from headwater.runtime import jvm
from headwater.testing import Project

ROOT = Path(__file__).parents[1]
NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "s"}}
COLUMNS = "i INT, d DOUBLE, s STRING, t STRING, day DATE, at TIMESTAMP, b BOOLEAN"


def write(folder: Path, *expectations: dict[str, Any], **more: Any) -> Path:
    file = folder / "silver.t.json"
    file.write_text(json.dumps({"name": "t", "expectations": list(expectations), **more}))
    return file


@pytest.mark.parametrize(
    ("more", "action"),
    [
        ({}, "quarantine"),
        ({"severity": "warning"}, "warn"),
        ({"severity": "info"}, "warn"),
        ({"severity": "info", "meta": {"action": "fail", "owner": "ops"}}, "fail"),
        ({"meta": {"action": "drop"}}, "drop"),
    ],
)
def test_the_action_is_said_or_follows_from_the_severity(
    tmp_path: Path, more: dict[str, Any], action: str
) -> None:
    (rule,) = suite.read(write(tmp_path, {**NOT_NULL, **more})).rules
    assert (rule.action, rule.id) == (action, "values_to_not_be_null(s)")


@pytest.mark.parametrize(
    ("every", "says"), [("soon", "'soon' is no span of time"), ("10ms", "less than a second")]
)
def test_a_schedule_that_is_none_is_refused(tmp_path: Path, every: str, says: str) -> None:
    file = write(tmp_path, NOT_NULL)
    found = {**json.loads(file.read_text()), "meta": {"every": every, "owner": "ops"}}
    file.write_text(json.dumps(found))
    with raises_code("SUITE_INVALID", match=f"{file}: meta.every.*{says}"):
        suite.read(file)
    file.write_text(json.dumps({**found, "meta": {"every": "1h"}}))
    assert suite.read(file).every == "1h"


@pytest.mark.parametrize(
    ("expectations", "code", "says"),
    [
        (
            [{**NOT_NULL, "meta": {"action": "explode"}}],
            "SUITE_INVALID",
            "expectations.1.meta.action: Input should be 'warn'",
        ),
        (
            [{**NOT_NULL, "sevrity": "info"}],
            "SUITE_INVALID",
            "expectations.1.sevrity: Extra inputs are not permitted",
        ),
        ([{"kwargs": {}}], "SUITE_INVALID", "expectations.1.type: Field required"),
        (
            [{**NOT_NULL, "meta": {"within": ["s"]}}],
            "EXPECTATION_INVALID",
            "expectation 1: meta.within is for expect_column_values_to_be_inc",
        ),
        (
            [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": None}}],
            "EXPECTATION_INVALID",
            "expectation 1: ",
        ),
        (
            [{"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": None}}],
            "EXPECTATION_INVALID",
            "expectation 1: ",
        ),
        (
            [NOT_NULL, NOT_NULL],
            "EXPECTATION_TWICE",
            "expectation 2: a second one is called values_to_not_be_null(s)",
        ),
    ],
)
def test_a_wrong_suite_is_refused(
    tmp_path: Path, expectations: list[dict[str, Any]], code: Code, says: str
) -> None:
    file = write(tmp_path, *expectations)
    with raises_code(code, table="silver.t") as e:
        suite.read(file)
    assert str(file) in str(e.value) and says in str(e.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "silver.t.json"
    file.write_text("{")
    with raises_code("SUITE_INVALID", table="silver.t", file="silver.t.json"):
        suite.read(file)


def column(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_column_{name}", "kwargs": kwargs}


@pytest.mark.parametrize(
    ("expectation", "code", "says"),
    [
        (
            {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1}},
            "EXPECTATION_NOT_FOR_BATCHES",
            "can't be told from single rows",
        ),
        (
            column("values_to_be_between", column="x", min_value=0),
            "EXPECTATION_INVALID",
            "no column 'x'; known: i, d, s",
        ),
        (
            column("values_to_be_between", column="i"),
            "EXPECTATION_INVALID",
            "min_value and max_value are both missing",
        ),
        (
            column("values_to_be_between", column="i", min_value=2, max_value=1),
            "EXPECTATION_INVALID",
            "min_value 2 is above",
        ),
        (
            column("values_to_be_between", column="i", min_value="a"),
            "EXPECTATION_INVALID",
            "'a' can't be compared with a int",
        ),
        (
            column("values_to_be_between", column="s", min_value=1),
            "EXPECTATION_INVALID",
            "s is a string, and Great Expectations orders",
        ),
        (
            column("values_to_be_between", column="day", min_value="soon"),
            "EXPECTATION_INVALID",
            "'soon' is no date",
        ),
        (
            column("values_to_be_between", column="at", min_value="2026-13-01"),
            "EXPECTATION_INVALID",
            "is no timestamp",
        ),
        (
            column("values_to_be_between", column="i", min=0, max_value=1),
            "EXPECTATION_INVALID",
            "has no argument 'min'",
        ),
        (
            column("values_to_be_in_set", column="i", value_set=["a"]),
            "EXPECTATION_INVALID",
            "'a' can't be compared with a int",
        ),
        (
            column("values_to_be_in_set", column="b", value_set=[1]),
            "EXPECTATION_INVALID",
            "1 can't be compared with a boolean",
        ),
        (
            column("values_to_be_in_set", column="i", value_set=[]),
            "EXPECTATION_INVALID",
            "value_set is no list of values",
        ),
        (
            column("values_to_match_regex", column="s", regex="("),
            "EXPECTATION_INVALID",
            "'(' is no regular expression",
        ),
        (
            column("values_to_match_regex", column="i", regex="1"),
            "EXPECTATION_INVALID",
            "i is int, and this is for strings",
        ),
        (
            column("values_to_match_regex", column="s"),
            "EXPECTATION_INVALID",
            "regex is missing; add it to kwargs",
        ),
        (
            column("value_lengths_to_equal", column="s", value=1.5),
            "EXPECTATION_INVALID",
            "value = 1.5 is no whole number",
        ),
        (
            column("values_to_be_of_type", column="i", type_="LongType"),
            "EXPECTATION_INVALID",
            "i is IntegerType, not LongType",
        ),
        (
            column("pair_values_to_be_equal", column_A="i", column_B="s"),
            "EXPECTATION_INVALID",
            "a int can't be compared with a string",
        ),
        (
            column("pair_values_to_be_equal", column_A="i", column_B="d", ignore_row_if="never"),
            "EXPECTATION_INVALID",
            "ignore_row_if = 'never'; known: both_values_are_missing",
        ),
        (
            column("values_to_be_null", column="s", row_condition='col("i") > 1'),
            "EXPECTATION_INVALID",
            "condition_parser = 'spark'",
        ),
    ],
)
def test_what_does_not_fit_the_table_is_refused(
    spark: SparkSession, tmp_path: Path, expectation: dict[str, Any], code: Code, says: str
) -> None:
    (rule,) = suite.read(write(tmp_path, expectation)).rules
    with raises_code(code, table="silver.t") as e:
        predicate.failed(rule, jvm.ddl(COLUMNS))
    assert "silver.t.json: expectation 1" in str(e.value) and says in str(e.value)


@pytest.mark.parametrize(
    "expectation",
    [
        {**column("max_to_be_between", column="i", max_value=1), "meta": {"scope": "batch"}},
        {**column("max_to_be_between", column="at"), "meta": {"scope": "batch", "max_age": "10m"}},
        {**column("values_to_be_increasing", column="i"), "meta": {"within": ["s"]}},
    ],
)
def test_what_only_batches_can_be_judged_by_is_refused_of_tables_that_none_judges(
    tmp_path: Path, expectation: dict[str, Any]
) -> None:
    found = suite.read(write(tmp_path, expectation))
    with raises_code("EXPECTATION_INVALID", table="silver.t", match="is expected of batches"):
        suite.of_whole_table(found)
    plain = {name: value for name, value in expectation.items() if name != "meta"}
    assert suite.of_whole_table(suite.read(write(tmp_path, plain))).rules


@pytest.mark.parametrize(
    ("kind", "value"), [("day", "20240101"), ("day", "2024-W01-1"), ("at", "20240101T101500")]
)
def test_a_time_is_what_it_is_in_whatever_form_of_iso(
    spark: SparkSession, tmp_path: Path, kind: str, value: str
) -> None:
    expectation = column("values_to_be_between", column=kind, min_value=value)
    (rule,) = suite.read(write(tmp_path, expectation)).rules
    rows = spark.sql("SELECT DATE'2024-01-01' AS day, TIMESTAMP'2024-01-01 10:15:00' AS at")
    assert rows.where(predicate.failed(rule, rows.schema)).count() == 0


def test_a_column_of_the_expected_type_has_no_failing_row(spark: SparkSession, tmp_path: Path) -> None:
    expectation = column("values_to_be_in_type_list", column="i", type_list=["IntegerType", "LongType"])
    (rule,) = suite.read(write(tmp_path, expectation)).rules
    rows = spark.createDataFrame([(1,), (None,)], "i INT")
    assert rows.where(predicate.failed(rule, rows.schema)).count() == 0


@pytest.mark.parametrize("file", sorted((ROOT / "quality").glob("*.json")), ids=lambda file: file.stem)
def test_great_expectations_loads_the_projects_suites_as_they_are(file: Path) -> None:
    found = json.loads(file.read_text())
    loaded = gx.ExpectationSuite(name=found["name"], expectations=found["expectations"], meta=found["meta"])
    assert len(loaded.expectations) == len(suite.read(file).rules) > 0
    assert found["name"] == file.stem


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        (column("value_lengths_to_be_between", column="s", min_value="three"), "three"),
        (column("values_to_not_be_null", column="s", row_condition={"type": "and"}), "conditions"),
        (
            {
                **column(
                    "mean_to_be_between",
                    column="i",
                    min_value=1,
                    row_condition="i >",
                    condition_parser="spark",
                ),
                "meta": {"scope": "batch"},
            },
            "PARSE_SYNTAX_ERROR",
        ),
    ],
)
def test_an_argument_of_another_kind_is_no_defect(
    interpreted: SparkSession, tmp_path: Path, expectation: dict[str, Any], says: str
) -> None:
    said = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": 'import headwater as hw\nraw = hw.topic("raw")\n',
        "silver/t.sql": "CREATE STREAMING TABLE t TBLPROPERTIES ('headwater.decode' = 'json', "
        "'headwater.schema' = 'i INT, s STRING') AS SELECT i, s, _source FROM STREAM bronze.raw",
        "quality/silver.t.json": json.dumps({"name": "silver.t", "expectations": [expectation]}),
    }
    with raises_code("EXPECTATION_INVALID", match=re.escape(says), file="silver.t.json"):
        Project(said, tmp_path, spark=interpreted).tables  # noqa: B018
