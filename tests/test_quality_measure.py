"""Expectations about many rows at once: what they find, over which window, and what becomes of the batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors.codes import Code
from headwater.project import suite
from headwater.quality import measure
from headwater.quality.gate import Gate
from headwater.quality.measure import Findings
from headwater.quality.tally import Tally

CLOCK = "2026-01-02T03:00:00.000000+00:00"
DDL = "n BIGINT, d DOUBLE, s STRING, at TIMESTAMP"
ROWS = [
    (1, 1.0, "a", datetime(2026, 1, 2, 1, tzinfo=UTC)),
    (2, 2.5, "b", datetime(2026, 1, 2, 2, tzinfo=UTC)),
    (2, None, "b", None),
    (4, 10.0, None, datetime(2026, 1, 1, tzinfo=UTC)),
]


def made(folder: Path, *expectations: dict[str, Any]) -> suite.Suite:
    file = folder / "silver.t.json"
    file.write_text(json.dumps({"name": "t", "expectations": list(expectations)}))
    return suite.read(file)


def expect(kind: str, meta: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "meta": {"scope": "batch", **(meta or {})}}


def found(spark: SparkSession, gate: Gate, before: measure.Shares | None = None) -> Findings:
    rows = gate.judge(spark.createDataFrame(ROWS, DDL).coalesce(1))
    metrics = rows.agg(*gate.metrics()).first()
    assert metrics is not None
    return gate.findings(gate.tally(metrics.asDict()), before or {}, CLOCK)


CASES = [
    expect("table_row_count_to_be_between", min_value=4, max_value=4),
    expect("table_row_count_to_equal", value=5),
    expect("column_mean_to_be_between", column="d", min_value=4, max_value=5),
    expect("column_mean_to_be_between", column="n", max_value=2.25, strict_max=True),
    expect("column_median_to_be_between", column="n", min_value=2, max_value=2),
    expect("column_sum_to_be_between", column="d", min_value=13.5, strict_min=True),
    expect("column_stdev_to_be_between", column="n", min_value=1.25, max_value=1.26),
    expect("column_min_to_be_between", column="n", min_value=1),
    expect("column_max_to_be_between", column="d", max_value=9),
    expect("column_unique_value_count_to_be_between", column="s", min_value=2, max_value=2),
    expect("column_proportion_of_unique_values_to_be_between", column="n", min_value=0.8),
    expect("column_distinct_values_to_be_in_set", column="s", value_set=["a", "b", "c"]),
    expect("column_distinct_values_to_be_in_set", column="n", value_set=[1, 2]),
    expect("column_distinct_values_to_contain_set", column="s", value_set=["a", "z"]),
    expect("column_distinct_values_to_equal_set", column="s", value_set=["a", "b"]),
    expect(
        "column_quantile_values_to_be_between",
        column="n",
        quantile_ranges={"quantiles": [0.0, 0.5, 1.0], "value_ranges": [[1, 1], [2, 2], [None, 4]]},
    ),
    expect(
        "column_quantile_values_to_be_between",
        column="n",
        quantile_ranges={"quantiles": [0.5], "value_ranges": [[3, 5]]},
    ),
]


def test_great_expectations_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    plain = [{"type": case["type"], "kwargs": case["kwargs"], "id": str(at)} for at, case in enumerate(CASES)]
    own = made(tmp_path, *[{**case, "id": str(at)} for at, case in enumerate(CASES)])
    missed = found(spark, Gate(own, spark.createDataFrame([], DDL).schema)).missed

    context = gx.get_context(mode="ephemeral")
    frame = pd.DataFrame(ROWS, columns=["n", "d", "s", "at"])
    batch = context.data_sources.add_pandas("p").add_dataframe_asset("a")
    whole = batch.add_batch_definition_whole_dataframe("b")
    expected = {}
    for each in plain:
        expectation = gx.ExpectationSuite(name="s", expectations=[each]).expectations[0]
        result = whole.get_batch({"dataframe": frame}).validate(expectation)
        assert not result.exception_info.get("raised_exception"), result
        expected[each["id"]] = bool(result.success)
    assert {str(at): str(at) not in missed for at in range(len(CASES))} == expected
    assert 5 < len(missed) < len(CASES) - 5


def test_a_share_is_judged_over_the_newest_batches_that_fill_its_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    rule = expect("column_values_to_not_be_null", {"window": 10}, column="d", mostly=0.8)
    gate = Gate(made(tmp_path, rule), spark.createDataFrame([], DDL).schema)
    name = "values_to_not_be_null(d)"
    first = found(spark, gate)
    assert first.missed == {} and first.shares == {name: [[4, 1]]}
    second = found(spark, gate, first.shares)
    third = found(spark, gate, second.shares)
    assert second.missed == {} and sum(seen for seen, _ in third.shares[name]) == 12
    assert third.missed == {name: "75.00% of the last 12 rows pass, 80.00% expected"}
    clean = measure.judge(gate.measures, {name: (20, 0)}, third.shares, datetime.now(UTC), 20)
    assert clean.missed == {} and clean.shares == {name: [[20, 0]]}


def test_how_old_the_newest_may_be(spark: SparkSession, tmp_path: Path) -> None:
    newest = "column_max_to_be_between"
    own = made(
        tmp_path,
        {**expect(newest, {"max_age": "30m", "action": "warn"}, column="at"), "id": "old"},
        {**expect(newest, {"max_age": "1h"}, column="at"), "id": "fresh"},
        {**expect(newest, column="at", max_value="2026-01-01T23:00:00"), "id": "late"},
        {**expect(newest, column="at", min_value="2026-01-02T02:00:00Z"), "id": "on time"},
        {**expect(newest, column="at", min_value="2026-01-02T02:00:00Z", strict_min=True), "id": "just"},
        {**expect(newest, column="at", max_value="2026-01-02T02:00:00Z", strict_max=True), "id": "before"},
    )
    missed = found(spark, Gate(own, spark.createDataFrame([], DDL).schema)).missed
    assert missed == {
        "old": "maximum 2026-01-02T02:00:00Z is older than 30m",
        "late": "maximum 2026-01-02T02:00:00Z, expected from any to 2026-01-01T23:00:00",
        "just": "maximum 2026-01-02T02:00:00Z, expected from 2026-01-02T02:00:00Z to any",
        "before": "maximum 2026-01-02T02:00:00Z, expected from any to 2026-01-02T02:00:00Z",
    }


def test_a_newest_beyond_the_year_9999_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    newest = "column_max_to_be_between"
    own = made(tmp_path, expect(newest, {"action": "warn"}, column="at", max_value="2026-01-01T00:00:00Z"))
    rows = spark.sql("SELECT timestamp_seconds(1700000000000) AS at, 1 AS i, 's' AS s, 1.5D AS d")
    gate = Gate(own, rows.schema)
    (judged,) = gate.measures
    values = gate.judge(rows).agg(*judged.metrics).head()
    assert values is not None
    assert "9999-12-31" in str(judged.judge([*values], datetime(2026, 1, 1, tzinfo=UTC)))


def test_rows_that_the_table_does_not_take_are_not_measured(spark: SparkSession, tmp_path: Path) -> None:
    drop = {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "d"},
        "meta": {"action": "drop"},
    }
    own = made(tmp_path, drop, expect("table_row_count_to_equal", value=3))
    assert found(spark, Gate(own, spark.createDataFrame([], DDL).schema)).missed == {}


def test_only_a_rule_that_fails_stops_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    own = made(
        tmp_path,
        expect("table_row_count_to_equal", {"action": "warn"}, value=3),
        {**expect("table_row_count_to_equal", {"action": "fail"}, value=2), "id": "two"},
    )
    gate = Gate(own, spark.createDataFrame([], DDL).schema)
    findings = found(spark, gate)
    assert set(findings.missed) == {"table_row_count_to_equal()", "two"}
    with raises_code("EXPECTATION_FAILED", table="silver.t") as e:
        gate.enforce(Tally(), findings, 7)
    assert "silver.t: batch 7 fails two (rows 4, expected 2, " in str(e.value)
    assert "expectation 2" in str(e.value) and "expectation 1" not in str(e.value)
    gate.enforce(Tally(), Findings(missed={"table_row_count_to_equal()": "…"}), 7)


@pytest.mark.parametrize(
    ("expectation", "code", "says"),
    [
        (
            expect("column_mean_to_be_between", column="s", min_value=1),
            "EXPECTATION_INVALID",
            "s is string, and this is for numbers",
        ),
        (
            expect("column_mean_to_be_between", column="n"),
            "EXPECTATION_INVALID",
            "min_value and max_value are both missing",
        ),
        (
            expect("column_mean_to_be_between", column="n", min=1, max_value=1),
            "EXPECTATION_INVALID",
            "has no argument 'min'",
        ),
        (
            expect("column_max_to_be_between", column="at"),
            "EXPECTATION_INVALID",
            "meta.max_age are all missing",
        ),
        (
            expect("column_max_to_be_between", {"max_age": "soon"}, column="at"),
            "EXPECTATION_INVALID",
            "meta.max_age: 'soon' is no",
        ),
        (
            expect("column_most_common_value_to_be_in_set", column="s", value_set=[1]),
            "EXPECTATION_NOT_FOR_BATCHES",
            "can't be judged on batches",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    spark: SparkSession, tmp_path: Path, expectation: dict[str, Any], code: Code, says: str
) -> None:
    own = made(tmp_path, expectation)
    with raises_code(code, table="silver.t") as e:
        Gate(own, spark.createDataFrame([], DDL).schema)
    assert "expectation 1" in str(e.value) and says in str(e.value)


@pytest.mark.parametrize(
    ("expectation", "code", "says"),
    [
        (
            expect("column_values_to_not_be_null", {"action": "drop"}, column="s", mostly=0.5),
            "ACTION_NOT_POSSIBLE",
            "no row is to drop",
        ),
        (
            expect("table_row_count_to_equal", {"action": "quarantine"}, value=1),
            "ACTION_NOT_POSSIBLE",
            "no row is to quarantine",
        ),
        (
            expect("column_values_to_not_be_null", column="s", mostly=1.5),
            "EXPECTATION_INVALID",
            "write a share from 0 to 1",
        ),
        (expect("column_values_to_not_be_null", {"window": 0}, column="s"), "SUITE_INVALID", "meta.window"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, expectation: dict[str, Any], code: Code, says: str
) -> None:
    with raises_code(code, table="silver.t", match=r"silver\.t\.json") as e:
        made(tmp_path, expectation)
    assert says in str(e.value)


def test_a_rule_about_the_whole_table_is_not_measured_in_the_stream(tmp_path: Path) -> None:
    rule = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}
    (read,) = made(tmp_path, rule).rules
    assert (read.scope, read.action) == ("table", "fail")
