"""The gate: each row judged once, the same few or many, and every row accounted for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import decode, stored
from headwater.analysis import BRONZE
from headwater.definitions import Json
from headwater.errors import FlowError
from headwater.flows.rows import Counts, FewRows, ManyRows, Work, read
from headwater.quality.gate import Gate, Tally
from headwater.quality.measure import Findings
from headwater.quality.suite import Rule, Suite
from headwater.quarantine import HELD

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
JSON = Json("host STRING, usage DOUBLE, n BIGINT")


def rule(name: str, action: Any, **kwargs: Any) -> Rule:
    return Rule(f"{name}({kwargs['column']})", f"expect_column_{name}", kwargs, action, "quality/t.json")


RULES = (
    rule("values_to_not_be_null", "quarantine", column="host"),
    rule("values_to_be_between", "quarantine", column="usage", min_value=0, max_value=100),
    rule("values_to_not_be_in_set", "drop", column="host", value_set=["test"]),
    rule("values_to_not_be_null", "warn", column="usage"),
)
VALUES = [
    b'{"host": "a", "usage": 1}',
    b'{"host": "a", "usage": 101.5, "n": 7}',
    b'{"usage": -1}',
    b'{"host": "test", "usage": 5}',
    b'{"host": "test", "usage": 500}',
    b'{"host": "b"}',
    b"broken",
    b'{"host": null, "usage": 50}',
    b'{"host": "c", "usage": 99}',
]


@pytest.fixture
def work(spark: SparkSession, tmp_path: Path) -> Callable[..., tuple[Work, str]]:
    def make(
        rules: tuple[Rule, ...], function: Callable[[DataFrame], DataFrame] = lambda rows: rows
    ) -> tuple[Work, str]:
        rows = [
            {
                **dict.fromkeys(BRONZE.fieldNames()),
                "value": value,
                "topic": "t",
                "partition": at % 2,
                "offset": at,
                "timestamp": NOW,
                "cluster": "c",
                "ingested_at": NOW,
            }
            for at, value in enumerate(VALUES)
        ]
        file = tmp_path / "in.parquet"
        pq.write_table(pa.Table.from_pylist(rows, stored.schema(BRONZE)), file)
        schema = decode.fields(JSON, "test")
        result = function(spark.createDataFrame([], decode.columns(schema, BRONZE)))
        gate = Gate(Suite("silver.t", Path("quality/t.json"), rules), result.schema)
        return Work(spark, BRONZE, schema, function, gate), str(file)

    return make


Taken = tuple[list[Any], list[Any], Counts]


def take(rows: FewRows | ManyRows) -> Taken:
    """What a batch writes, what it holds back, and its counts."""
    passed = rows.passed()
    written = (passed if isinstance(passed, pa.Table) else passed.toArrow()).to_pylist()
    counts, held = rows.counts(), rows.held("2026-02-03T04:05:06.000007+00:00")
    kept = held if isinstance(held, pa.Table) else held.toArrow()
    assert kept.schema.names == HELD.fieldNames()
    return (
        sorted(written, key=lambda row: row["_source"]["offset"]),
        sorted(kept.to_pylist(), key=lambda row: (row["offset"], row["row"] or "")),
        counts,
    )


def both(work: Work, file: str) -> Taken:
    few, many = take(FewRows(work, read([file], work.columns))), take(ManyRows(work, [file], len(VALUES)))
    assert few[0] == many[0]
    assert few[1] == many[1]
    assert few[2] == many[2]
    return few


def test_each_row_goes_where_its_strongest_action_says(work: Callable[..., tuple[Work, str]]) -> None:
    passed, held, counts = both(*work(RULES))
    assert [row["_source"]["offset"] for row in passed] == [0, 5, 8]
    assert {row["offset"]: row["rules"] for row in held} == {
        1: ["values_to_be_between(usage)"],
        2: ["values_to_not_be_null(host)", "values_to_be_between(usage)"],
        4: ["values_to_be_between(usage)", "values_to_not_be_in_set(host)"],
        6: ["malformed"],
        7: ["values_to_not_be_null(host)"],
    }
    assert all(row["value"] == VALUES[row["offset"]] and row["timestamp"] == NOW for row in held)
    assert held[0]["reason"] == "fails values_to_be_between(usage)"
    assert json.loads(held[0]["row"])["usage"] == 101.5 and held[3]["row"] is None
    assert counts.taken == 9 and counts.malformed == 1
    assert counts.tally == Tally(
        rows=8,
        dropped=1,
        quarantined=4,
        failed={
            "values_to_not_be_null(host)": 2,
            "values_to_be_between(usage)": 3,
            "values_to_not_be_in_set(host)": 2,
            "values_to_not_be_null(usage)": 1,
        },
    )


def test_a_function_may_make_many_rows_of_one(work: Callable[..., tuple[Work, str]]) -> None:
    """Of two rows of one record, the one that fails is held back."""
    passed, held, counts = both(
        *work(RULES, lambda rows: rows.withColumn("usage", F.explode(F.array("usage", F.lit(-5.0)))))
    )
    assert counts.tally.rows == 16 == len(passed) + counts.tally.dropped + counts.tally.quarantined
    assert len(held) == counts.tally.quarantined + 1
    assert [row["offset"] for row in held].count(0) == 1
    assert [row["_source"]["offset"] for row in passed].count(0) == 1


def test_a_rule_that_fails_the_flow_says_which_rows_without_their_values(
    work: Callable[..., tuple[Work, str]],
) -> None:
    rules = (*RULES[:1], rule("values_to_be_between", "fail", column="usage", min_value=0, max_value=100))
    made, file = work(rules)
    for rows in (FewRows(made, read([file], made.columns)), ManyRows(made, [file], len(VALUES))):
        _, _, counts = take(rows)
        assert made.gate is not None
        with pytest.raises(FlowError) as e:
            made.gate.enforce(counts.tally, Findings(), 12)
        said = str(e.value)
        assert "silver.t: batch 12 fails values_to_be_between(usage) (3 rows, quality/t.json)" in said
        assert "usage: 999.9" in said and "101" not in said


def test_a_suite_may_have_more_rules_than_a_word_has_bits(work: Callable[..., tuple[Work, str]]) -> None:
    many = tuple(
        Rule(
            f"r{at}",
            "expect_column_values_to_be_between",
            {"column": "usage", "max_value": at},
            "warn",
            "q",
        )
        for at in range(0, 140)
    )
    _, _, counts = both(*work((*many, RULES[1])))
    assert len(counts.tally.failed) == 141
    assert counts.tally.failed["r0"] == 6 and counts.tally.failed["r139"] == 1
    assert counts.tally.quarantined == 3


def test_rows_that_all_pass_are_all_written(work: Callable[..., tuple[Work, str]]) -> None:
    passed, held, counts = both(*work((rule("values_to_be_null", "warn", column="n"),)))
    assert len(passed) == 8 and len(held) == 1
    assert counts.tally == Tally(rows=8, failed={"values_to_be_null(n)": 1})
