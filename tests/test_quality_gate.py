"""The gate: each row judged once, the same few or many, and every row accounted for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from raising import raises_code

from headwater.connectors import decode
from headwater.errors import NOWHERE, Where
from headwater.errors.codes import Code
from headwater.flows.rows import FewRows, ManyRows, read
from headwater.flows.work import Counts, Work
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Json
from headwater.project.rule import Rule
from headwater.project.suite import Suite
from headwater.quality.gate import Gate
from headwater.quality.measure import Findings
from headwater.quality.quarantine import HELD
from headwater.quality.tally import Tally
from headwater.runtime import jvm
from headwater.storage import stored
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
JSON = Json("host STRING, usage DOUBLE, n BIGINT")


def rule(name: str, action: Any, **kwargs: Any) -> Rule:
    return Rule(
        f"{name}({kwargs['column']})", f"expect_column_{name}", kwargs, action, Where("quality/t.json")
    )


RULES = (
    rule("values_to_not_be_null", "quarantine", column="host"),
    rule("values_to_be_between", "quarantine", column="usage", min_value=0, max_value=100),
    rule("values_to_not_be_in_set", "drop", column="host", value_set=["test"]),
    rule("values_to_not_be_null", "warn", column="usage"),
)
UNIQUE = Rule("host", "expect_column_values_to_be_unique", {"column": "host"}, "quarantine", Where("q"))
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
def work(interpreted: SparkSession, tmp_path: Path) -> Callable[..., tuple[Work, str]]:
    def make(
        rules: tuple[Rule, ...],
        function: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        spark: SparkSession = interpreted,
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
        schema = decode.fields(JSON, NOWHERE)
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


def test_each_row_goes_where_its_strongest_action_says(
    spark: SparkSession, work: Callable[..., tuple[Work, str]]
) -> None:
    passed, held, counts = both(*work(RULES, spark=spark))  # whose queries are compiled, as a run's are
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


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_that_are_held_back_are_told_one_by_one_only_while_they_are_few(
    work: Callable[..., tuple[Work, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """What comes back into this process of each of them is bounded, however many there are."""
    told = 0

    def ids_of(self: Gate, held: Any) -> list[str]:
        nonlocal told
        told += 1
        return whole(self, held)

    whole = Gate.ids_of
    monkeypatch.setattr(Gate, "ids_of", ids_of)
    monkeypatch.setattr(decode, "MOST", 2)
    written = tmp_path / "written.parquet"
    pq.write_table(pa.table({"host": ["b", "c", "c", None]}), written)
    rules = (*RULES[1:], UNIQUE) if keyed else RULES
    twice = F.explode(F.array("n", F.lit(1), F.lit(1)))  # equal rows of one record, too
    made, file = work(rules, lambda rows: rows.withColumn("n", twice))
    made = replace(made, written=lambda: [str(written)]) if keyed else made
    _, held, counts = both(made, file)
    assert counts.tally.quarantined == (17 if keyed else 12) == len(held) - 1 and not told
    many = ManyRows(made, [file], len(VALUES))
    many.passed().toArrow()
    assert many._judged is not None and len(many._judged[1].get["held"]) == 2


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
        with raises_code("EXPECTATION_FAILED", table="silver.t") as e:
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


def test_of_rows_with_one_key_the_first_stays(
    spark: SparkSession, tmp_path: Path, work: Callable[..., tuple[Work, str]]
) -> None:
    made, file = work((RULES[2], UNIQUE), spark=spark)
    passed, held, counts = both(made, file)
    assert {row["_source"]["offset"] for row in passed} == {0, 2, 5, 7, 8}
    assert {row["offset"]: row["rules"] for row in held} == {1: ["host"], 6: ["malformed"]}
    assert counts.tally.dropped == 2  # which are alike, but not in the table

    written = tmp_path / "written.parquet"
    pq.write_table(pa.table({"host": ["b", "c", "c", None]}), written)
    passed, held, _ = both(replace(made, written=lambda: [str(written)]), file)
    assert {row["_source"]["offset"] for row in passed} == {0, 2, 7}
    assert {row["offset"] for row in held} == {1, 5, 6, 8}


def test_of_equal_rows_of_one_record_the_first_stays(work: Callable[..., tuple[Work, str]]) -> None:
    keys = {"column_list": ["host", "usage"], "ignore_row_if": "any_value_is_missing"}
    pairs = Rule("pairs", "expect_compound_columns_to_be_unique", keys, "quarantine", Where("q"))
    passed, held, counts = both(
        *work(
            (RULES[1], pairs), lambda rows: rows.withColumn("twice", F.explode(F.array(F.lit(1), F.lit(1))))
        )
    )
    offsets = [row["_source"]["offset"] for row in passed]
    assert {at: offsets.count(at) for at in (0, 3, 5, 7, 8)} == {0: 1, 3: 1, 5: 2, 7: 2, 8: 1}
    assert [row["offset"] for row in held if row["rules"] == ["pairs"]] == [0, 3, 8]
    assert counts.tally.quarantined == 3 + 6


def test_one_rule_about_keys_may_keep_rows_out_and_others_warn(
    work: Callable[..., tuple[Work, str]],
) -> None:
    usage = Rule("usage", UNIQUE.type, {"column": "usage"}, "drop", Where("q.json: expectation 2"))
    with raises_code(
        "EXPECTATIONS_DEPEND", match=r"^q\.json: expectation 2: usage keeps rows out .* as host does: "
    ):
        work((UNIQUE, usage))
    # The second is judged first, and what it keeps out makes no other row fail the first.
    rules = (replace(usage, action="warn"), UNIQUE)
    made, file = work(rules, lambda rows: rows.withColumn("usage", F.lit(1.0)))
    passed, _, counts = both(made, file)
    assert counts.tally.failed == {"host": 2, "usage": 5}
    assert {row["_source"]["offset"] for row in passed} == {0, 2, 4, 5, 7, 8}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strictly", [False, True])
@pytest.mark.parametrize("action", ["quarantine", "warn"])
def test_a_column_grows_within_its_key_however_batches_are_cut(
    interpreted: SparkSession, seed: int, strictly: bool, action: Any
) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    falls = draw.random() < 0.5
    kind = f"expect_column_values_to_be_{'decreasing' if falls else 'increasing'}"
    grows = Rule("grows", kind, {"column": "n", "strictly": strictly}, action, Where("q"), within=("host",))
    rules = (rule("values_to_be_between", "drop", column="usage", max_value=9), grows)
    columns = jvm.ddl(
        "host STRING, usage DOUBLE, n BIGINT, _source STRUCT<cluster: STRING, topic: STRING, "
        "partition: INT, offset: BIGINT>"
    )
    places = [("c", "t", at % 2, at // 2) for at in range(60)]
    hosts = ["a", "b", None]
    values = [
        (draw.choice(hosts), draw.choice([1.0, 10.0]), draw.choice([None, *range(9)]), p) for p in places
    ]
    furthest: dict[Any, int] = {}
    want = set()
    for host, usage, n, place in values:
        if n is None or usage > 9:
            continue
        key, at = (host, place[2]), -n if falls else n
        if key in furthest and (at <= furthest[key] if strictly else at < furthest[key]):
            want.add(place)
        furthest[key] = max(at, furthest.get(key, at))

    gate = Gate(Suite("silver.t", Path("q"), rules), columns)
    cuts = sorted(draw.sample(range(1, 60), 3))
    table, got = interpreted.createDataFrame([], columns), set()
    for begin, end in zip([0, *cuts], [*cuts, 60], strict=True):
        batch = values[begin:end]
        draw.shuffle(batch)
        judged = gate.judge(interpreted.createDataFrame(batch, columns), table if begin else None)
        judged = interpreted.createDataFrame(judged.toArrow(), judged.schema)
        failing = judged.where(F.col("__failed0").bitwiseAND(2) != 0).select("_source.*")
        got |= {tuple(row) for row in failing.toArrow().to_pylist() for row in [row.values()]}
        table = table.union(gate.passed(judged))
    assert got == want and want


@pytest.mark.parametrize(("falls", "files"), [(False, [1]), (True, [0])])
def test_a_column_that_grows_is_compared_with_files_whose_rows_have_come_as_far(
    work: Callable[..., tuple[Work, str]], tmp_path: Path, falls: bool, files: list[int]
) -> None:
    kind = f"expect_column_values_to_be_{'decreasing' if falls else 'increasing'}"
    grows = Rule("grows", kind, {"column": "n"}, "quarantine", Where("q"), within=("host",))
    made, file = work((grows,), lambda rows: rows.withColumn("n", F.col("_source.offset")))
    assert made.schema is not None
    columns = stored.schema(decode.columns(made.schema, BRONZE))
    target = Target(Lake(tmp_path / "lake").create("silver.t", columns, properties={}))
    for at, n in enumerate((-5, 40)):
        place = {"cluster": "c", "topic": "t", "partition": 1, "offset": at}
        rows = pa.Table.from_pylist([{"host": "a", "n": n, "_source": place}], columns)
        target.append(target.write(rows, str(at)), Identity("silver.t", 1, at, {}))
    asked: list[list[str]] = []

    def near(*wanted: Any) -> list[str]:
        asked.append(target.near(*wanted))
        return asked[-1]

    passed, held, _ = both(replace(made, written=target.files, near=near), file)
    assert [sorted(target.files()).index(each) for each in asked[0]] == files and len(asked) == 1
    assert {row["offset"] for row in held} == {6, 1} and 0 in {row["_source"]["offset"] for row in passed}


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ({}, "ORDER_WITHOUT_KEYS", "name what tells keys apart, as meta.within = \\['id'\\]"),
        ({"within": ("hots",)}, "EXPECTATION_INVALID", "no column 'hots'"),
        (
            {"within": ("host",), "kwargs": {"column": "host"}},
            "EXPECTATION_INVALID",
            "host is string; this is for numbers and times",
        ),
        (
            {"within": ("host",), "kwargs": {"column": "n", "parse": 1}},
            "EXPECTATION_INVALID",
            "no argument 'parse'",
        ),
    ],
)
def test_an_order_that_there_is_none_of_is_refused(
    work: Callable[..., tuple[Work, str]], more: dict[str, Any], code: Code, says: str
) -> None:
    grows = Rule("grows", "expect_column_values_to_be_increasing", {"column": "n"}, "warn", Where("q"))
    with raises_code(code, match=says):
        work((replace(grows, **more),))


def test_many_rows_at_once_are_measured_the_same_both_ways(work: Callable[..., tuple[Work, str]]) -> None:
    share = {"column": "usage", "min_value": 0, "max_value": 60, "mostly": 0.9}
    rules = (
        RULES[1],
        Rule("share", "expect_column_values_to_be_between", share, "warn", Where("q"), window=5),
        Rule("rows", "expect_table_row_count_to_equal", {"value": 1}, "warn", Where("q")),
    )
    made, file = work(rules)
    _, _, counts = both(made, file)
    assert counts.tally.measured == {"share": (4, 1), "rows": (5,)}
    assert made.gate is not None
    missed = made.gate.findings(counts.tally, {"share": [[4, 0]]}, NOW.isoformat()).missed
    assert missed == {
        "share": "87.50% of the last 8 rows pass, 90.00% expected",
        "rows": "rows 5, expected 1",
    }


def test_rows_that_all_pass_are_all_written(work: Callable[..., tuple[Work, str]]) -> None:
    passed, held, counts = both(*work((rule("values_to_be_null", "warn", column="n"),)))
    assert len(passed) == 8 and len(held) == 1
    assert counts.tally == Tally(rows=8, failed={"values_to_be_null(n)": 1})
