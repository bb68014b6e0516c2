"""Compiled expectations and Great Expectations itself agree on every row."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import great_expectations as gx
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.project import suite
from headwater.quality import predicate
from headwater.runtime import jvm
from headwater.storage import stored

DDL = (
    "id INT, i INT, j BIGINT, d DOUBLE, f FLOAT, dec DECIMAL(38,10), p DECIMAL(9,2), q DECIMAL(9,2), "
    "s STRING, t STRING, day DATE, at TIMESTAMP, b BOOLEAN"
)
ROWS = 150
STRINGS = [
    "",
    "a",
    "A",
    "abc",
    "héé",
    "日本",
    "\U0001f30a\U0001f30a",
    "a\nb",
    " ",
    "cpu12",
    "x" * 300,
    "%_",
    "null",
]
NUMBERS = [0, 1, -1, 5, 100, 101, 2**31 - 1, -(2**31)]
DOUBLES = [0.0, -0.0, 1.0, 5.0, 100.0, 100.00000001, math.nan, math.inf, -math.inf, 5e-324, 1.7e308]
DECIMALS = [Decimal(0), Decimal("0.1"), Decimal("0.2"), Decimal("-9999999.99"), Decimal("9999999.99")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [EPOCH, EPOCH - timedelta(microseconds=1), datetime(2026, 1, 1, tzinfo=UTC)]
TIMES += [
    datetime(1700, 1, 1, tzinfo=UTC),
    datetime(2262, 1, 1, tzinfo=UTC),
]  # pandas, in GX, goes no further

Case = dict[str, Any]


def value(name: str, **kwargs: Any) -> Case:
    return {"type": f"expect_column_{name}", "kwargs": kwargs}


CASES: list[Case] = [
    *(value("values_to_not_be_null", column=c) for c in ("i", "d", "s", "day", "at", "b")),
    *(value("values_to_be_null", column=c) for c in ("d", "s", "dec")),
    value("values_to_be_between", column="d", max_value=100),
    value("values_to_be_between", column="d", max_value=100, strict_max=True),
    value(
        "values_to_be_between", column="at", min_value="1970-01-01T00:00:00", max_value="2026-01-01T00:00:00"
    ),
    value("values_to_be_between", column="day", min_value="1970-01-01", strict_min=True),
    value("values_to_be_in_set", column="i", value_set=[0, 1, 5]),
    value("values_to_be_in_set", column="d", value_set=[0, 1.0, 5]),
    value("values_to_be_in_set", column="s", value_set=["", "a", "日本"]),
    value("values_to_not_be_in_set", column="s", value_set=["", "a", "日本"]),
    value("values_to_not_be_in_set", column="j", value_set=[0, 1]),
    value("values_to_be_in_set", column="b", value_set=[True]),
    value("values_to_match_regex", column="s", regex="^[a-z]+$"),
    value("values_to_match_regex", column="s", regex="cpu[0-9]+"),
    value("values_to_not_match_regex", column="s", regex="^\\s*$"),
    value("values_to_match_regex_list", column="s", regex_list=["^a", "^c"], match_on="any"),
    value("values_to_match_regex_list", column="s", regex_list=["^a", "c$"], match_on="all"),
    value("values_to_not_match_regex_list", column="s", regex_list=["^a", "c$"]),
    value("value_lengths_to_be_between", column="s", min_value=1, max_value=3),
    value("value_lengths_to_be_between", column="s", min_value=1, strict_min=True),
    value("value_lengths_to_equal", column="s", value=2),
    value("pair_values_to_be_in_set", column_A="s", column_B="t", value_pairs_set=[["a", "a"], ["", "abc"]]),
    *(
        {
            "type": "expect_select_column_values_to_be_unique_within_record",
            "kwargs": {"column_list": ["s", "t"], "ignore_row_if": ignored},
        }
        for ignored in ("all_values_are_missing", "any_value_is_missing", "never")
    ),
    value(
        "values_to_be_between",
        column="d",
        min_value=0,
        max_value=10,
        row_condition="s = 'a' OR i > 3",
        condition_parser="spark",
    ),
    value(
        "values_to_be_between",
        column="d",
        min_value=0,
        row_condition={
            "type": "and",
            "conditions": [
                {"type": "comparison", "column": {"name": "i"}, "operator": ">=", "parameter": 1},
                {"type": "nullity", "column": {"name": "s"}, "is_null": False},
            ],
        },
    ),
    value(
        "values_to_not_be_null",
        column="d",
        row_condition={
            "type": "comparison",
            "column": {"name": "s"},
            "operator": "IN",
            "parameter": ["a", ""],
        },
    ),
]
PAIRS = [("i", "j"), ("d", "f"), ("p", "q"), ("s", "t")]
IGNORED = ["both_values_are_missing", "either_value_is_missing", "neither"]
COMPARED: list[tuple[str, Case]] = [
    ("to_be_equal", {}),
    ("a_to_be_greater_than_b", {}),
    ("a_to_be_greater_than_b", {"or_equal": True}),
]


def of_pairs(*, every: bool) -> list[Case]:
    """Comparisons of two columns: every combination, or a third of them in which any two choices meet."""
    return [
        value(f"pair_values_{what}", column_A=a, column_B=b, ignore_row_if=ignored, **more)
        for at, (a, b) in enumerate(PAIRS)
        for by, ignored in enumerate(IGNORED)
        for how, (what, more) in enumerate(COMPARED)
        if every or (at + by + how) % 3 == 0
    ]


def of_bounds(*, every: bool) -> list[Case]:
    """Bounds of numbers: every combination, or each type once and each kind of bound twice."""
    bounds = [(0, 100, False, False), (0, 100, True, True), (-1, None, True, False)]
    return [
        value("values_to_be_between", column=c, min_value=low, max_value=high, strict_min=a, strict_max=b)
        for at, c in enumerate(("i", "j", "d", "f", "dec", "p"))
        for by, (low, high, a, b) in enumerate(bounds)
        if every or at % 3 == by
    ]


def of_sums(*, every: bool) -> list[Case]:
    """Sums of columns: every combination, or each pair and each way to ignore rows once."""
    ignored = ["all_values_are_missing", "any_value_is_missing", "never"]
    return [
        {
            "type": "expect_multicolumn_sum_to_equal",
            "kwargs": {"column_list": columns, "sum_total": total, "ignore_row_if": ignored[by]},
        }
        for at, (columns, total) in enumerate(((["i", "j"], 5), (["d", "f"], 1), (["p", "q"], 0.3)))
        for by in range(3)
        if every or at == by
    ]


def rows(seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)

    def pick(values: list[Any]) -> Any:
        return None if draw.random() < 0.15 else draw.choice(values)

    return [
        {
            "id": at,
            "i": pick(NUMBERS),
            "j": pick([*NUMBERS, 2**63 - 1, -(2**63)]),
            "d": pick(DOUBLES),
            "f": pick([x for x in DOUBLES if abs(x) < 1e30 or not math.isfinite(x)]),
            "dec": pick([*DECIMALS, Decimal("1234567890123456789012345678.0123456789"), Decimal("100")]),
            "p": pick([Decimal("0.10"), Decimal("100.00"), *DECIMALS[:3]]),
            "q": pick([Decimal("0.20"), Decimal("0.10"), *DECIMALS[:3]]),
            "s": pick(STRINGS),
            "t": pick(STRINGS),
            "day": pick([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31), date(2026, 2, 28)]),
            "at": pick(TIMES),
            "b": pick([True, False]),
        }
        for at in range(ROWS)
    ]


@pytest.fixture(scope="module")
def context() -> Any:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    return context


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.torture)])
def frames(
    spark: SparkSession, interpreted: SparkSession, request: pytest.FixtureRequest
) -> tuple[DataFrame, DataFrame, list[Case]]:
    """The rows for us and for Great Expectations, whose small queries are not compiled, and the cases."""
    print(f"seed {request.param}")
    every = request.param > 1
    cases = CASES + of_bounds(every=every) + of_sums(every=every) + of_pairs(every=every)
    columns = jvm.ddl(DDL)
    table = pa.Table.from_pylist(rows(request.param), stored.schema(columns))
    return spark.createDataFrame(table, columns), interpreted.createDataFrame(table, columns).cache(), cases


def judged_by_gx(context: Any, frame: DataFrame, file: Path) -> list[set[int]]:
    """The ids of the rows that fail each expectation, as Great Expectations finds them."""
    name = f"{file}"
    source = context.data_sources.add_spark(name, persist=False)
    whole = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    found = json.loads(file.read_text())
    expectations = gx.ExpectationSuite(name=name, expectations=found["expectations"])
    # By a validation definition the result would be stored too, which takes minutes: for each decimal in it
    # Great Expectations reads its own call stack with the lines of its source.
    result = whole.get_batch({"dataframe": frame}).validate(
        expectations,
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["id"]},
    )
    by_id = {r.expectation_config.meta["case"]: r for r in result.results}
    failed = []
    for at in range(len(found["expectations"])):
        one = by_id[at]
        assert not one.exception_info.get("exception_message"), (
            found["expectations"][at],
            one.exception_info,
        )
        failed.append({row["id"] for row in one.result.get("unexpected_index_list") or []})
    return failed


def test_every_expectation_agrees_with_great_expectations_on_every_row(
    context: Any, frames: tuple[DataFrame, DataFrame, list[Case]], tmp_path: Path
) -> None:
    frame, copy, drawn = frames
    file = tmp_path / "silver.rows.json"
    cases = [{**case, "id": None, "meta": {"case": at}} for at, case in enumerate(drawn)]
    named = [{**case, "id": f"rule-{at}"} for at, case in enumerate(cases)]
    file.write_text(json.dumps({"name": "silver.rows", "expectations": named}))
    rules = suite.read(file).rules
    fails = [predicate.failed(rule, frame.schema).alias(f"r{at}") for at, rule in enumerate(rules)]
    ours: list[set[int]] = [set() for _ in rules]
    for row in frame.select("id", *fails).toArrow().to_pylist():
        for at in range(len(rules)):
            if row[f"r{at}"]:
                ours[at].add(row["id"])
    file.write_text(json.dumps({"name": "silver.rows", "expectations": cases}))
    theirs = judged_by_gx(context, copy, file)
    different = [
        (case["type"], case["kwargs"], sorted(a - b)[:5], sorted(b - a)[:5])
        for case, a, b in zip(drawn, ours, theirs, strict=True)
        if a != b
    ]
    assert not different, different
    assert sum(bool(failed) for failed in ours) > len(drawn) * 0.9
    assert frame.where(F.lit(True)).count() == ROWS
