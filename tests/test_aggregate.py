"""Aggregates kept up to date: which are taken, and that any cut and order of rows gives Spark's answer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from raising import raises_code

from headwater.errors import Where
from headwater.errors.codes import Code
from headwater.flows.few import Few, Frames, Here
from headwater.planner import aggregate, group_by, instants
from headwater.planner.aggregate import Aggregate, Output
from headwater.planner.partials import computed, merge, regrouped
from headwater.project.windows import cumulative_windows, register
from headwater.runtime import jvm
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.testing import Project

DDL = "at TIMESTAMP, k STRING, x DOUBLE, f FLOAT, n BIGINT, i INT, d DECIMAL(12,2), s STRING, day DATE, "
DDL += "ok BOOLEAN"
WHERE = Where.of("gold/t.sql", "gold.t")


@pytest.fixture(scope="module")
def rows(interpreted: SparkSession) -> DataFrame:
    """No rows, as the temporary view `rows`."""
    frame = interpreted.createDataFrame([], jvm.ddl(DDL))
    frame.createOrReplaceTempView("rows")
    return frame


# What is taken


@pytest.mark.parametrize(
    ("sql", "outputs", "window"),
    [
        ("SELECT k, count(*) c FROM rows GROUP BY k", "k:key c:count", ""),
        ("SELECT count(x) c, k FROM rows GROUP BY k", "c:count k:key", ""),
        ("SELECT sum(n) s, min(x) a, max(d) b FROM rows", "s:sum a:min b:max", ""),
        ("SELECT k, avg(x) a FROM rows GROUP BY k", "k:key a:avg", ""),
        ("SELECT k, avg(n) FILTER (WHERE ok) a FROM rows GROUP BY k", "k:key a:avg", ""),
        ("SELECT upper(k) u, count(1) c FROM rows GROUP BY upper(k)", "u:key c:count", ""),
        ("SELECT k a, k b, max(s) m FROM rows GROUP BY k", "a:key b:key m:max", ""),
        ("SELECT window w, max(x) m FROM rows GROUP BY window(at, '1 minute')", "w:key:all m:max", "time"),
        (
            "SELECT WINDOW.start a, window.END b, K, avg(x) m FROM rows GROUP BY window(at, '5 minutes'), k",
            "a:key:start b:key:end K:key m:avg",
            "time",
        ),
        (
            "SELECT window.start a, sum(n) m FROM rows GROUP BY window(at, '2 minutes', '1 minute')",
            "a:key:start m:sum",
            "time",
        ),
        (
            "SELECT k, c AS hits FROM (SELECT k, count(*) c FROM rows WHERE x > 1 GROUP BY k)",
            "k:key hits:count",
            "",
        ),
        (
            "SELECT WINDOW.start a, K, C FROM "
            "(SELECT window, k, count(*) c FROM rows GROUP BY window(at, '1 minute'), k)",
            "a:key:start K:key C:count",
            "time",
        ),
        ("SELECT k, upper(k) u, count(*) c FROM rows GROUP BY k", "k:key u:key c:count", ""),
        ("SELECT k, max_by(s, at) l, min_by(x, n) f FROM rows GROUP BY k", "k:key l:max_by f:min_by", ""),
    ],
)
def test_taken(interpreted: SparkSession, rows: DataFrame, sql: str, outputs: str, window: str) -> None:
    found = aggregate.find(interpreted.sql(sql), WHERE)
    wanted = tuple(Output(*output.split(":")) for output in outputs.split())
    assert found == Aggregate(wanted, window)
    assert found.keys == tuple(output.name for output in wanted if output.kind == "key")


@pytest.mark.parametrize(
    ("column", "below", "told"),
    [
        ("at", "rows", True),
        ("day", "rows", False),
        ("at", "(SELECT at + INTERVAL 1 HOUR AS at FROM rows)", False),
        ("date_trunc('hour', at)", "rows", False),
        ("other", "(SELECT at, at AS other FROM rows)", True),
        ("other", "(SELECT at, at - INTERVAL 1 HOUR AS other FROM rows)", False),
        ("at", "(SELECT a.at, b.at AS other FROM rows a JOIN rows b ON a.k = b.k)", True),
        ("other", "(SELECT a.at, b.at AS other FROM rows a JOIN rows b ON a.k = b.k)", False),
        ("other", "(SELECT a.at AS other, b.at FROM rows a JOIN rows b ON a.k = b.k)", False),
    ],
)
@pytest.mark.parametrize("length", ["'5 minutes'", "'10 minutes', '5 minutes'"])
def test_a_window_is_that_of_an_instant_or_computed_otherwise(
    interpreted: SparkSession, rows: DataFrame, column: str, below: str, told: bool, length: str
) -> None:
    query = f"SELECT window, count(*) AS c FROM {below} GROUP BY window({column}, {length})"
    assert instants.is_held(group_by.take(interpreted.sql(query), WHERE), "at") is told


def test_cumulative_windows_are_of_an_instant(interpreted: SparkSession, rows: DataFrame) -> None:
    windows = F.explode(cumulative_windows("at", size="1 day", step="6 hours"))
    found = group_by.take(rows.withColumn("window", windows).groupBy("window").count(), WHERE)
    assert instants.is_held(found, "at") and not instants.is_held(found, "day")
    register(interpreted)
    query = "SELECT window, count(*) AS c FROM (SELECT explode(windows) AS window, at FROM (SELECT at, "
    query += "cumulative_windows(at, INTERVAL 1 DAY, INTERVAL 6 HOURS) AS windows FROM rows)) GROUP BY window"
    assert instants.is_held(group_by.take(interpreted.sql(query), WHERE), "at")


def test_python_form_is_taken(rows: DataFrame) -> None:
    frame = (
        rows.groupBy(F.window("at", "5 minutes"), "k")
        .agg(F.avg("x").alias("mean"), F.count("*").alias("n"))
        .select(F.col("window.start").alias("since"), F.col("k").alias("key"), "mean", "n")
    )
    found = aggregate.find(frame, WHERE)
    assert found is not None and found.window == "time"
    assert [(o.name, o.kind) for o in found.outputs] == [
        ("since", "key"),
        ("key", "key"),
        ("mean", "avg"),
        ("n", "count"),
    ]


def test_no_aggregate_is_none(interpreted: SparkSession, rows: DataFrame) -> None:
    assert aggregate.find(interpreted.sql("SELECT k, upper(s) u FROM rows WHERE x > 1"), WHERE) is None


@pytest.mark.parametrize(
    ("sql", "code", "says"),
    [
        (
            "SELECT k, count(*) c FROM rows GROUP BY k HAVING count(*) > 1",
            "AGGREGATE_NOT_OUTERMOST",
            "a filter (HAVING, or WHERE with a subquery) above",
        ),
        (
            "SELECT k, count(*) c FROM rows GROUP BY k ORDER BY c",
            "AGGREGATE_NOT_OUTERMOST",
            "ORDER BY above or beside GROUP BY",
        ),
        (
            "SELECT k, count(*) c FROM rows GROUP BY k LIMIT 3",
            "AGGREGATE_NOT_OUTERMOST",
            "LIMIT above or beside GROUP BY",
        ),
        (
            "SELECT DISTINCT k, count(*) c FROM rows GROUP BY k",
            "AGGREGATE_NOT_OUTERMOST",
            "DISTINCT above or beside GROUP BY",
        ),
        (
            "SELECT k, count(DISTINCT s) c FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "can't be maintained from new rows alone; known: sum",
        ),
        ("SELECT k, median(x) m FROM rows GROUP BY k", "AGGREGATE_NOT_MAINTAINABLE", "m = "),
        (
            "SELECT k, first(x) m FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "can't be maintained from new rows alone",
        ),
        (
            "SELECT k, count(x, n) c FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "can't be maintained from new rows alone",
        ),
        (
            "SELECT k, max(c) m FROM (SELECT k, s, count(*) c FROM rows GROUP BY k, s) GROUP BY k",
            "AGGREGATE_OF_AGGREGATE",
            "its own",
        ),
        (
            "SELECT session_window.start a, day(session_window.end) d, count(*) c FROM rows "
            "GROUP BY session_window(at, '1 minute')",
            "COMPUTES_WITH_SESSION",
            "computes with a session",
        ),
        (
            "SELECT count(*) c FROM rows GROUP BY k",
            "GROUP_NOT_SELECTED",
            "GROUP BY rows.k is not among its columns; add it",
        ),
        (
            "SELECT k, count(*) c FROM rows GROUP BY k, s",
            "GROUP_NOT_SELECTED",
            "GROUP BY rows.s is not among",
        ),
        (
            "SELECT upper(k) u, count(*) c FROM rows GROUP BY k",
            "GROUP_NOT_SELECTED",
            "GROUP BY rows.k is not among its columns",
        ),
        (
            "SELECT date(window.start) d, count(*) c FROM rows GROUP BY window(at, '1 hour')",
            "GROUP_NOT_SELECTED",
            "is not among",
        ),
        (
            "SELECT p.a, count(*) c FROM (SELECT struct(k a, s b) p FROM rows) GROUP BY p",
            "GROUP_NOT_SELECTED",
            "is not among",
        ),
        (
            "SELECT window.start a, count(*) c FROM rows GROUP BY window(at, '1 minute'), k",
            "GROUP_NOT_SELECTED",
            "GROUP BY rows.k is not",
        ),
        ("SELECT k, sum(x) / count(x) m FROM rows GROUP BY k", "COMPUTES_WITH_AGGREGATE", "m = "),
        (
            "SELECT k, round(avg(x), 1) m FROM rows GROUP BY k",
            "COMPUTES_WITH_AGGREGATE",
            "computes with an aggregate",
        ),
        (
            "SELECT k, c + 1 AS c FROM (SELECT k, count(*) c FROM rows GROUP BY k)",
            "COMPUTES_WITH_AGGREGATE",
            "c = ",
        ),
        (
            "SELECT k, max_by(struct(x), at) m FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "of a STRUCT, ARRAY or MAP it can't",
        ),
        (
            "SELECT k, avg(d) m FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "avg of DECIMAL or INTERVAL is not supported; keep sum and count",
        ),
        (
            "SELECT k COLLATE UNICODE_CI AS k, count(*) c FROM rows GROUP BY k COLLATE UNICODE_CI",
            "AGGREGATE_NOT_MAINTAINABLE",
            "is by a collation",
        ),
        (
            "SELECT k, min(s COLLATE UNICODE_CI) m FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "by a collation it can't",
        ),
        (
            "SELECT k, max_by(x, s COLLATE UNICODE_CI) m FROM rows GROUP BY k",
            "AGGREGATE_NOT_MAINTAINABLE",
            "by a collation it can't",
        ),
        ("SELECT k, sum(x) s FROM rows GROUP BY ROLLUP(k)", "GROUPING_SETS_NOT_SUPPORTED", "ROLLUP"),
        (
            "SELECT a.k, a.c FROM (SELECT k, count(*) c FROM rows GROUP BY k) a JOIN rows USING (k)",
            "AGGREGATE_NOT_OUTERMOST",
            "a join above or beside GROUP BY",
        ),
        (
            "SELECT k, count(*) c FROM rows GROUP BY k UNION ALL SELECT k, 1 FROM rows",
            "AGGREGATE_NOT_OUTERMOST",
            "UNION",
        ),
        (
            "SELECT k FROM rows WHERE x > (SELECT avg(x) FROM rows)",
            "AGGREGATE_NOT_OUTERMOST",
            "WHERE with a subquery",
        ),
    ],
)
def test_refused(interpreted: SparkSession, rows: DataFrame, sql: str, code: Code, says: str) -> None:
    with raises_code(code, table="gold.t") as refused:
        aggregate.find(interpreted.sql(sql), WHERE)
    assert str(refused.value).startswith(f"{WHERE}: ") and says in str(refused.value)


# What is kept: Spark's own answer over all rows, however they come

WINDOWED = """SELECT window.start AS since, k, count(*) AS n_rows, count(x) AS n_x, sum(x) AS sum_x,
    min(x) AS min_x, max(x) AS max_x, avg(x) AS avg_x, avg(n) FILTER (WHERE ok) AS avg_ok,
    count(*) FILTER (WHERE ok) AS n_ok,
    sum(n) AS sum_n, sum(i) AS sum_i, avg(i) AS avg_i, min(n) AS min_n, sum(d) AS sum_d, min(d) AS min_d,
    max(d) AS max_d, min(f) AS min_f, max(f) AS max_f, avg(f) AS avg_f, min(s) AS min_s, max(s) AS max_s,
    min(at) AS min_at, max(day) AS max_day, max(ok) AS max_ok, sum(x) FILTER (WHERE x > 1) AS sum_big
    FROM rows GROUP BY window(at, '2 minutes', '1 minute'), k"""
LATEST = """SELECT k, max_by(s, at) AS s, max_by(x, at) AS x, min_by(n, at) FILTER (WHERE ok) AS n,
    avg(x) AS m, max_by(ok, x) FILTER (WHERE x > -10 AND x < 10 AND x <> 0) AS by_x,
    min_by(day, at) AS day, count(*) AS c
    FROM rows GROUP BY k"""
FLOAT_KEYS = """SELECT x, f, day, ok, s, count(*) AS c, max(n) AS m, avg(d * 1D) AS a
    FROM rows GROUP BY x, f, day, ok, s"""
GLOBAL = "SELECT count(*) AS c, sum(x) AS s, avg(x) AS a, max(s) AS m FROM rows"

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def drawn(draw: random.Random) -> tuple[Any, ...]:
    at = T0 + timedelta(
        seconds=draw.choice((draw.uniform(0, 300), draw.uniform(-1e9, 0), draw.uniform(0, 60)))
    )
    odd = (None, math.nan, 0.0, -0.0, math.inf, 1e300, -1.5)
    return (
        at if draw.random() < 0.97 else None,
        draw.choice((None, "", "a", "b", "B", "ü'\"")),
        draw.choice(odd) if draw.random() < 0.15 else draw.uniform(-10, 10),
        draw.choice(odd[:5]) if draw.random() < 0.15 else draw.choice((1.25, -2.5, 1e30)),
        draw.choice((None, draw.randrange(-(2**40), 2**40))),
        draw.choice((None, draw.randrange(-(2**31), 2**31))),
        draw.choice((None, Decimal(draw.randrange(-(10**11), 10**11)).scaleb(-2))),
        draw.choice((None, "", "z", "é", "\U0001f600", "a" * 50)),
        draw.choice((None, T0.date(), T0.date() - timedelta(days=40_000))),
        draw.choice((None, True, False)),
    )


BEST = """SELECT k, max_by(struct(s, n), at, 3) AS best, min_by(n, at, 2) FILTER (WHERE ok) AS first,
    count(*) AS c
    FROM rows GROUP BY k"""


@pytest.mark.parametrize("sql", [WINDOWED, LATEST, FLOAT_KEYS, GLOBAL, BEST])
def test_any_cut_in_any_order_is_the_batch_query(interpreted: SparkSession, tmp_path: Path, sql: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    data = [drawn(draw) for _ in range(240)]
    wanted = table(query(interpreted, sql, data))
    found, stored = analysed(interpreted, sql)
    for order in range(3):
        draw.shuffle(data)
        cuts = sorted(draw.sample(range(len(data)), 2))
        batches = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        batches.insert(draw.randrange(len(batches)), [])
        made = list(partials(interpreted, sql, batches, stored))
        if found.merges:
            assert_same(merged_here(found, stored, made, tmp_path / str(order)), wanted, found)
        assert_same(combined_here(found, stored, made, tmp_path / f"{order}-combined"), wanted, found)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([math.nan, 1.0], {"min_x": 1.0, "max_x": math.nan}),
        ([1.0, math.nan], {"min_x": 1.0, "max_x": math.nan}),
        ([math.nan, None], {"min_x": math.nan, "max_x": math.nan}),
        ([math.nan, math.inf], {"min_x": math.inf, "max_x": math.nan}),
        ([None, None], {"n_x": 0, "sum_x": None, "min_x": None, "avg_x": None}),
        ([None, 2.0], {"n_x": 1, "sum_x": 2.0, "min_x": 2.0, "max_x": 2.0, "avg_x": 2.0}),
        ([2.0, None], {"n_x": 1, "sum_x": 2.0, "min_x": 2.0, "max_x": 2.0, "avg_x": 2.0}),
    ],
)
def test_two_batches_of_one_row(
    interpreted: SparkSession, tmp_path: Path, values: list[float | None], wanted: dict[str, Any]
) -> None:
    sql = (
        "SELECT k, count(x) n_x, sum(x) sum_x, min(x) min_x, max(x) max_x, avg(x) avg_x FROM rows GROUP BY k"
    )
    batches = [[(T0, None, x, *[None] * 7)] for x in values]
    kept = maintained(interpreted, sql, batches, tmp_path)
    assert len(kept) == 1
    assert repr({name: kept[0][name] for name in wanted}) == repr(wanted)


@pytest.mark.parametrize("kind", ["max_by", "min_by"])
def test_of_equal_orders_one_value_is_taken_whatever_came_first(
    interpreted: SparkSession, tmp_path: Path, kind: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    values = [None, "", "a", "b"]
    data = [(None, "k", draw.choice((1.0, math.nan, None)), None, None, None, None, s) for s in values * 5]
    data = [(*row, None, None) for row in data]
    sql = f"SELECT k, {kind}(s, x) AS s, {kind}(n, n) AS none FROM rows GROUP BY k"
    orders = [x for _, _, x, *_ in data if x is not None]
    by = max(orders, key=lambda x: (math.isnan(x), x)) if kind == "max_by" else min(orders, key=math.isnan)
    found = [row[7] for row in data if repr(row[2]) == repr(by)]
    texts = [s for s in found if s is not None]
    want = max(texts, default=None) if kind == "max_by" else None if None in found else min(texts)
    for at in range(3):
        draw.shuffle(data)
        cut = draw.randrange(1, len(data))
        kept = maintained(interpreted, sql, [data[:cut], data[cut:]], tmp_path / str(at))
        assert [(row["s"], row["none"]) for row in kept] == [(want, None)]


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_null_is_the_least_of_what_has_equal_orders(
    interpreted: SparkSession, tmp_path: Path, turned: bool, cut: int
) -> None:
    sql = """SELECT k, max_by(n, x, 1) AS last, min_by(n, x, 2) AS first,
        max_by(struct(n, array(s)), x, 2) AS pairs FROM rows GROUP BY k"""
    data = [row(n=n, x=1.0, s=s) for n, s in ((None, "a"), (5, None), (5, "b"))]
    data = data[::-1] if turned else data
    (kept,) = combined(interpreted, sql, [data[:cut], data[cut:]], tmp_path)
    pairs = [{"n": 5, "col2": ["b"]}, {"n": 5, "col2": [None]}]
    assert kept == {"k": None, "last": [5], "first": [None, 5], "pairs": pairs}


def test_of_no_rows_the_best_are_null_as_in_the_batch_query(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    sql = "SELECT k, max_by(n, x, 2) AS none, min_by(n, i, 2) FILTER (WHERE ok) AS later FROM rows GROUP BY k"
    batches = [[row(n=1)], [row(n=2, i=1), row(n=3, i=2, ok=True)]]
    for count, later in ((1, None), (2, [3])):
        wanted = [{"k": None, "none": None, "later": later}]
        data = [each for batch in batches[:count] for each in batch]
        assert table(query(interpreted, sql, data)) == wanted
        assert combined(interpreted, sql, batches[:count], tmp_path / str(count)) == wanted


MOST, WIDE, NEAR = 2**63 - 1, f"{'9' * 36}.99", f"6{'0' * 35}"
NEGATIVE_NAN = -math.nan  # what 0.0 / 0.0 is on many processors


@pytest.mark.parametrize("way", ["merged", "combined", "in one batch"])
@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([{"n": MOST}, {"n": 10}], "sum_n"),
        ([{"n": -MOST}, {"n": -10}], "sum_n"),
        ([{"s": WIDE}, {"s": WIDE}], "sum_wide"),
        ([{"s": f"-{NEAR}"}, {"s": f"-{NEAR}"}], "sum_wide"),
    ],
)
def test_a_sum_that_outgrows_its_type_is_not_committed(
    interpreted: SparkSession, tmp_path: Path, values: list[dict[str, Any]], column: str, way: str
) -> None:
    sql = "SELECT k, sum(n) sum_n, sum(CAST(s AS DECIMAL(38,2))) sum_wide, sum(x) sum_x FROM rows GROUP BY k"
    data = [row(**each) for each in values]
    with pytest.raises(ArithmeticException):
        table(query(interpreted, sql, data))
    batches = [data] if way == "in one batch" else [[each] for each in data]
    keep = combined if way == "combined" else maintained
    with raises_code("SUM_OUTGROWS_TYPE", match=f"gold/t.sql: gold.t: .*{column}", table="gold.t"):
        keep(interpreted, sql, batches, tmp_path)
    assert DeltaTable(Lake(tmp_path).places()["gold.t"].path).version() == len(batches) - 1


def test_a_table_whose_sum_outgrew_its_type_goes_on_once_it_is_rebuilt(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    project = Project(
        {
            "conf/local.yaml": "kafka: embedded\n",
            "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
            "silver/paid.py": """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("who STRING, n BIGINT"))
def paid(raw):
    \"\"\"One row per payment.\"\"\"
    return raw
""",
            "gold/paid.sql": "CREATE STREAMING TABLE gold.paid AS SELECT who, sum(n) AS paid "
            "FROM STREAM silver.paid GROUP BY who",
        },
        tmp_path,
        spark=interpreted,
    )
    project.send("raw", [{"who": "a", "n": MOST}]).step()
    project.send("raw", [{"who": "a", "n": 10}])
    with raises_code("SUM_OUTGROWS_TYPE", table="gold.paid", file="gold/paid.sql"):
        project.step()
    assert project.rows("gold.paid") == [("a", MOST)]
    project.change("gold/paid.sql", "sum(n)", "sum(CAST(n AS DECIMAL(38, 0)))")
    assert project.rebuild("gold.paid").swapped
    assert project.rows("gold.paid") == [("a", MOST + 10)]


@pytest.mark.parametrize("keep", ["maintained", "combined"])
def test_a_sum_that_just_fits_its_type_is_kept(interpreted: SparkSession, tmp_path: Path, keep: str) -> None:
    sql = "SELECT k, sum(n) n, min(n) m, sum(d) d, sum(CAST(s AS DECIMAL(38,2))) s FROM rows GROUP BY k"
    values = [
        (2**62, Decimal("9999999999.99"), WIDE[:-1] + "8"),
        (2**62 - 1, Decimal("-0.01"), "0.01"),
        (-(2**63), None, f"-{WIDE}"),
        (-(2**63) + 1, None, f"-{WIDE}"),
    ]
    batches = [[row(n=n, d=d, s=s)] for n, d, s in values]
    kept = {"maintained": maintained, "combined": combined}[keep](interpreted, sql, batches, tmp_path)
    assert kept == table(query(interpreted, sql, [row for batch in batches for row in batch]))


@pytest.mark.parametrize("keep", ["maintained", "combined"])
def test_names_of_columns_may_have_quotes(interpreted: SparkSession, tmp_path: Path, keep: str) -> None:
    sql = """SELECT k AS `the "k'ey.`, at AS `a"t`, sum(n) AS `it's "n".`, avg(n) AS `a"v'g`,
        max_by(s, n) AS `l'a"st` FROM rows GROUP BY k, at"""
    batches = [[row(k="a", at=T0, n=n, s=str(n))] for n in (1, 3)]
    kept = {"maintained": maintained, "combined": combined}[keep](interpreted, sql, batches, tmp_path)
    assert kept == table(query(interpreted, sql, [row for batch in batches for row in batch]))


@pytest.mark.parametrize("keep", ["maintained", "combined"])
def test_an_average_does_not_outgrow_a_whole_number(
    interpreted: SparkSession, tmp_path: Path, keep: str
) -> None:
    sql = "SELECT k, avg(n) a FROM rows GROUP BY k"
    batches = [[row(n=MOST), row(n=MOST)], [row(n=MOST)]]
    kept = {"maintained": maintained, "combined": combined}[keep](interpreted, sql, batches, tmp_path)
    assert kept == table(query(interpreted, sql, [row for batch in batches for row in batch]))


@pytest.mark.parametrize("keep", ["maintained", "combined"])
@pytest.mark.parametrize("values", [(1.0, NEGATIVE_NAN), (NEGATIVE_NAN, 1.0), (NEGATIVE_NAN, math.inf)])
def test_a_nan_is_the_greatest_value_whatever_its_sign(
    interpreted: SparkSession, tmp_path: Path, values: tuple[float, float], keep: str
) -> None:
    sql = """SELECT k, min(x) least, max(x) most, max(f) most_f, max_by(s, x) of_most, min_by(s, x) of_least,
        min(struct(x, s)) AS pair FROM rows GROUP BY k"""
    batches = [[row(x=x, f=x, s=repr(x))] for x in values]
    kept = {"maintained": maintained, "combined": combined}[keep](interpreted, sql, batches, tmp_path)
    assert repr(kept) == repr(table(query(interpreted, sql, [row for batch in batches for row in batch])))


def row(**values: Any) -> tuple[Any, ...]:
    """A row of which some columns are known, the others NULL."""
    return tuple(values.get(column.split()[0]) for column in DDL.replace("(12,2)", "").split(", "))


def query(interpreted: SparkSession, sql: str, data: list[tuple[Any, ...]]) -> DataFrame:
    interpreted.createDataFrame(data, jvm.ddl(DDL)).coalesce(1).createOrReplaceTempView("rows")
    return interpreted.sql(sql)


def maintained(
    interpreted: SparkSession, sql: str, batches: list[list[tuple[Any, ...]]], folder: Path
) -> list[dict[str, Any]]:
    """The rows of a table to which each batch's partial result was merged."""
    found, stored = analysed(interpreted, sql)
    return merged_here(found, stored, partials(interpreted, sql, batches, stored), folder)


def combined(
    interpreted: SparkSession, sql: str, batches: list[list[tuple[Any, ...]]], folder: Path
) -> list[dict[str, Any]]:
    """The rows of a table that each batch's partial result was put together with outside of it."""
    found, stored = analysed(interpreted, sql)
    return combined_here(found, stored, partials(interpreted, sql, batches, stored), folder)


def analysed(interpreted: SparkSession, sql: str) -> tuple[Aggregate, pa.Schema]:
    """The aggregate that a query is, and the columns of its table."""
    empty = query(interpreted, sql, [])
    found = aggregate.find(empty, WHERE)
    assert found is not None
    return found, aggregate.schema(empty, WHERE)


def partials(
    interpreted: SparkSession, sql: str, batches: list[list[tuple[Any, ...]]], stored: pa.Schema
) -> Iterator[pa.Table]:
    """Each batch's partial result, computed when it is its turn."""
    here, columns = Here(interpreted), jvm.ddl(DDL)

    def asked(frames: Frames) -> DataFrame:
        frames["rows"].createOrReplaceTempView("rows")
        return interpreted.sql(sql)

    for batch in batches:
        rows = interpreted.createDataFrame(batch, columns).toArrow()
        batch_of = Few(here, (), [{"rows": here.given(rows, columns)}], asked)
        yield computed(lambda name, then, few=batch_of: few.then(name, then).rows, WHERE).cast(stored)


def merged_here(
    found: Aggregate, stored: pa.Schema, made: Iterable[pa.Table], folder: Path
) -> list[dict[str, Any]]:
    target = Target(Lake(folder).create("gold.t", stored, properties={}))
    for sequence, partial in enumerate(made):
        merge(found, target, partial, Identity("gold.t", 1, sequence, {}), WHERE)
    return without_partial(DeltaTable(target.place.path).to_pyarrow_table())


def combined_here(
    found: Aggregate, stored: pa.Schema, made: Iterable[pa.Table], folder: Path
) -> list[dict[str, Any]]:
    target = Target(Lake(folder).create("gold.t", stored, properties={}))
    for sequence, partial in enumerate(made):
        changes = regrouped(found, target.held(stored), partial, WHERE)
        target.change(changes, found.keys, Identity("gold.t", 1, sequence, {}))
    return without_partial(target.held(stored))


def without_partial(kept: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name != aggregate.PARTIAL} for row in kept.to_pylist()
    ]


def table(frame: DataFrame) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


def assert_same(kept: list[dict[str, Any]], wanted: list[dict[str, Any]], found: Aggregate) -> None:
    one, other = ({key_of(row, found): row for row in rows} for rows in (kept, wanted))
    assert len(one) == len(kept) and set(one) == set(other)
    for key, row in one.items():
        for name, value in row.items():
            assert equal(value, other[key][name]), (key, name, value, other[key][name])


def key_of(row: dict[str, Any], found: Aggregate) -> str:
    return repr(
        [0.0 if row[name] == 0 and isinstance(row[name], float) else row[name] for name in found.keys]
    )


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
