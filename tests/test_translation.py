"""Queries of few rows, by DuckDB: it gives what Spark gives, and where it might not Spark is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.flows.few import Few, Frames, Here
from headwater.planner import analysis
from headwater.planner.translation.carrying import Carried
from headwater.project import windows
from headwater.project.load import load_project
from headwater.runtime import jvm
from headwater.storage import stored

DDL = (
    "k STRING, s STRING, n INT, l BIGINT, h SMALLINT, y TINYINT, x DOUBLE, f FLOAT, m DECIMAL(12,2), "
    "q DECIMAL(8,4), b BOOLEAN, at TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, "
    "o STRUCT<a: INT, at: TIMESTAMP, s: STRING>, tags ARRAY<STRING>"
)
ROOT = Path(__file__).parent.parent
NAN = float("nan")
TEXTS = ["", "a", "b", " a ", "é", "日本", "a%b", "A", "ab", "\U0001f642x", "a'b", 'a"b']
TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 2, 28, 23, 59, 59, 1, tzinfo=UTC),
    datetime(1883, 3, 4, 5, 6, 7, 8, tzinfo=UTC),
    datetime(2026, 1, 4, 12, 30, 15, 500_000, tzinfo=UTC),
]
DOUBLES = [0.0, -0.0, 1.5, -2.25, NAN, float("inf"), float("-inf"), 1e-9, 12345.678]


def rows(draw: random.Random, count: int, *, whole: int = 40) -> pa.Table:
    """Random rows, a tenth of the values NULL."""

    def one() -> dict[str, Any]:
        found: dict[str, Any] = {
            "k": draw.choice("abc"),
            "s": draw.choice(TEXTS),
            "n": draw.randint(-whole, whole),
            "l": draw.randint(-whole, whole),
            "h": draw.randint(-7, 7),
            "y": draw.randint(-7, 7),
            "x": draw.choice(DOUBLES),
            "f": draw.choice([0.0, -0.5, 2.25, NAN]),
            "m": Decimal(draw.randint(-9_999, 9_999)) / 100,
            "q": Decimal(draw.randint(-9_999, 9_999)) / 10_000,
            "b": draw.random() < 0.5,
            "at": draw.choice(TIMES),
            "ntz": draw.choice(TIMES).replace(tzinfo=None),
            "day": draw.choice([date(2026, 1, 1), date(1969, 12, 31), date(2024, 2, 29)]),
            "o": {"a": draw.randint(0, 2), "at": draw.choice(TIMES), "s": draw.choice([*TEXTS, None])},
            "tags": draw.choice([[], ["a"], ["a", None, "b"]]),
        }
        return {name: None if draw.random() < 0.1 else value for name, value in found.items()}

    return pa.Table.from_pylist([one() for _ in range(count)], stored.schema(jvm.ddl(DDL)))


def both(
    spark: SparkSession, sql: str, *given: pa.Table, columns: StructType | None = None
) -> tuple[pa.Table | None, pa.Table]:
    """What DuckDB and Spark give of a query over `rows`, and `others` if there are more; None: DuckDB is
    not asked."""
    found, asked = each(spark, sql, *given, columns=columns)
    return found, asked.toArrow()


def each(
    spark: SparkSession, sql: str, *given: pa.Table, columns: StructType | None = None
) -> tuple[pa.Table | None, DataFrame]:
    """The same, where Spark has not been asked yet."""
    names = ["rows", "others"][: len(given)]

    def asked(frames: Frames) -> DataFrame:
        for name in names:
            frames[name].createOrReplaceTempView(name)
        return spark.sql(sql)

    kinds = columns or jvm.ddl(DDL)
    here = Here(spark)
    inputs = {name: here.given(some, kinds) for name, some in zip(names, given, strict=True)}
    known = {name: one.rows for name, one in inputs.items() if one.rows is not None}
    carried = Carried(spark, dict.fromkeys(names, kinds), asked)(known)
    return carried, asked({name: one.frame() for name, one in inputs.items()})


def told(table: pa.Table) -> list[str]:
    """Rows as text, doubles to nine digits, in order."""

    def value(each: Any) -> Any:
        if isinstance(each, float):
            return f"{each + 0.0:.9g}" if each == each else "NaN"
        if isinstance(each, dict):
            return {name: value(one) for name, one in each.items()}
        return [value(one) for one in each] if isinstance(each, list) else each

    return sorted(repr({name: value(each) for name, each in row.items()}) for row in table.to_pylist())


OF_ROWS = [  # SELECT … FROM rows
    "n + 1, n - h, l * 2, y + y, -n, abs(l), x + 1, x - f, x * 2.5D, m + q, m - q, m * q, -m",
    "n / 4, x / 4, l div 7, n % 7, pmod(n, 7), pmod(l, -3), l % -3",
    "n = h, n < l, x > f, x >= 1, f <= x, s = k, s < k, s >= 'a', m > q, at < ntz, b = true",
    "n <=> h, s <=> k, o <=> o, n <> 3, NOT b, b AND n > 1, b OR n > 1, s IS NULL, x IS NOT NULL",
    "s IN ('a', 'é', NULL), n IN (1, 2), n BETWEEN -3 AND 3, isnan(x), s LIKE 'a%', s LIKE '_b'",
    "coalesce(s, k), ifnull(n, 0), nvl(at, TIMESTAMP '2020-01-01'), nullif(n, 1), if(b, s, k)",
    "CASE WHEN n > 3 THEN 'big' WHEN n > 0 THEN s END, CASE k WHEN 'a' THEN 1 ELSE 2 END",
    "greatest(n, h, 3), least(m, 1.00), greatest(s, k), greatest(x, 1D), least(x, 1D)",
    "CAST(n AS BIGINT), CAST(n AS DOUBLE), CAST(n AS STRING), CAST(b AS STRING), CAST(m AS STRING)",
    "concat(s, 0.25, -0.5, 0.0), CAST(q * 0.000001 AS STRING), CAST(CAST(h AS DECIMAL(38,30)) AS STRING)",
    "CAST(n AS DECIMAL(20,3)), CAST(m AS DECIMAL(20,4)), CAST(f AS DOUBLE), CAST(m AS DOUBLE), "
    "CAST(at AS DATE)",
    "CAST(day AS TIMESTAMP), CAST(NULL AS INT), 1.5, DATE '2020-02-29', TIMESTAMP '2020-01-01 00:00:01.5'",
    "o.a, o.at, o.s, struct(n, s) AS st, named_struct('p', n, 'o', o) AS deep, tags",
    "at + INTERVAL 5 MINUTES, at - INTERVAL '1 02:03:04' DAY TO SECOND, at - at > INTERVAL 0 SECONDS",
    "year(at), month(at), day(at), hour(at), minute(at), second(at), year(day), month(day)",
    "date_trunc('HOUR', at), date_trunc('week', at), date_trunc('MONTH', at), date_trunc('day', ntz)",
    "unix_micros(at), unix_millis(at), unix_seconds(at), timestamp_millis(l), timestamp_seconds(n)",
    "concat(s, '-', k), length(s), startswith(s, 'a'), endswith(s, 'b'), contains(s, k), s || k",
    "n & h, l | 3",
    "k, explode(tags) AS tag, n",
    "n, explode(sequence(n, l)) AS item",
    "k, transform(tags, t -> concat(t, s)) AS marked, transform(sequence(h, 5), i -> n * 2 + i) AS numbers",
    "transform(sequence(1, n), i -> named_struct('i', i, 'js', transform(sequence(i, 2), j -> i * j))) AS s",
    "DISTINCT k, n, day",
    "k, n, rank() OVER (PARTITION BY k ORDER BY n DESC), dense_rank() OVER (ORDER BY s NULLS LAST)",
    "l, sum(n) OVER (PARTITION BY k ORDER BY l), max(n) OVER (PARTITION BY k), count(*) OVER ()",
]
SAME = [
    "SELECT n, x, f FROM rows WHERE x > 1",
    "SELECT n, x, f FROM rows WHERE f >= 0.5 OR x > 2 AND f > 0",
    "SELECT k, explode(windows) AS window FROM "
    "(SELECT k, cumulative_windows(at, INTERVAL 1 DAY, INTERVAL 6 HOURS) AS windows FROM rows)",
    "SELECT at, at + span AS later FROM (SELECT *, INTERVAL 90 MINUTES AS span FROM rows)",
    "SELECT k, count(*), count(n), count(n, s), count(DISTINCT s), sum(n), sum(l), sum(m), avg(n) "
    "FROM rows GROUP BY k",
    "SELECT k, s, min(n), max(s), min(at), max(m), max(b), min(day), sum(h) FILTER (WHERE n > 0) "
    "FROM rows GROUP BY k, s",
    "SELECT k, max(struct(at, n, s, l)), min(struct(day, n, l, s)) FROM rows GROUP BY k",
    "SELECT k, max_by(n, struct(at, l, n)), min_by(n, struct(l, n)) FROM rows GROUP BY k",
    "SELECT sum(n), count(*), max(s) FROM rows WHERE n > 1000",
    "SELECT 1 AS one FROM rows HAVING true",
    "SELECT k, max_by(n, struct(at, l, n), 2), min_by(struct(n, s), struct(l, n, s), 3) FROM rows GROUP BY k",
    "SELECT k, get(tags, 1), tags[0] FROM rows WHERE get(tags, 0) = 'a' OR tags IS NULL",
    "SELECT n, l, s FROM rows ORDER BY n DESC NULLS LAST, l, s, at, m, x, h, y, day, b LIMIT 7",
    "SELECT window.start, window.end, k, count(*), sum(m) FROM rows GROUP BY window(at, '5 minutes'), k",
    "SELECT window, count(*) FROM rows GROUP BY window(at, '10 minutes', '5 minutes', '1 minute')",
    "SELECT n + 1 AS one, n + 1 + count(*), o.a FROM rows GROUP BY n + 1, o.a HAVING count(*) > 1",
    "SELECT k, n, at FROM rows WHERE n > 0 UNION ALL SELECT s, h, at FROM rows WHERE b",
    "SELECT *, row_number() OVER (PARTITION BY k ORDER BY l, n, s, at, m, x, h, y, day, b DESC) FROM "
    "rows WHERE n > 0",
    "SELECT lag(k) OVER (ORDER BY id), lead(id, 2, -1L) OVER (PARTITION BY k ORDER BY id), sum(id) "
    "OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) FROM (SELECT *, row_number() OVER "
    "(ORDER BY l, n, s, at, m, x, h, y, day, b, q, f, k) + 0L AS id FROM rows)",
    "WITH r AS (SELECT k, sum(n) AS total FROM rows GROUP BY k) SELECT a.k, b.total FROM r a JOIN r "
    "b ON a.k = b.k",
]
PATTERNS = [
    r"^[a-z]+$",
    r"^\\d{1,3}(?:\\.\\d{1,3}){3}$",
    "a|b",
    r"^host-[0-9]+$",
    "[^a-c]",
    r"\\w+@",
    "^(ab?)+$",
]
OF_TWO = [
    f"SELECT r.n, o.n, o.s FROM rows r {kind} JOIN others o ON r.n = o.n AND o.at >= r.at - INTERVAL 1 DAY"
    for kind in ("", "LEFT", "RIGHT", "FULL")
]
OF_TWO += [f"SELECT r.n, r.s FROM rows r {kind} JOIN others o ON r.n = o.n" for kind in ("SEMI", "ANTI")]
OF_TWO += [
    "SELECT r.k, o.n FROM rows r CROSS JOIN others o",
    "SELECT * FROM rows r JOIN others o USING (k, n)",
]
# DuckDB knows these too, but gives something else, or might.
OTHERWISE = [
    "SELECT upper(s) FROM rows",
    "SELECT s FROM rows WHERE s LIKE 'a/%_' ESCAPE '/'",
    "SELECT s, s LIKE '%/%%' ESCAPE '/' AND k LIKE 'a%' FROM rows",
    "SELECT s RLIKE '.' FROM rows",
    "SELECT s RLIKE '(?i)a' FROM rows",
    "SELECT CAST(s AS INT) FROM rows WHERE s = '1'",
    "SELECT CAST(x AS STRING) FROM rows",
    "SELECT CAST(at AS STRING) FROM rows",
    "SELECT CAST(x AS INT) FROM rows WHERE x BETWEEN 0 AND 2",
    "SELECT CAST(m AS DECIMAL(12,1)) FROM rows",
    "SELECT x, count(*) FROM rows GROUP BY x",
    "SELECT x = f FROM rows",
    "SELECT DISTINCT x FROM rows",
    "SELECT avg(m) FROM rows",
    "SELECT k, sum(CAST(m AS DECIMAL(30,2))) FROM rows GROUP BY k",
    "SELECT at + CAST('5' AS INTERVAL DAY) FROM rows",
    "SELECT at - CAST('-10' AS INTERVAL MINUTE) FROM rows",
    "SELECT m / q FROM rows WHERE q <> 0",
    "SELECT pow(x, 2), sin(x) FROM rows",
    "SELECT o < o FROM rows",
    "SELECT s COLLATE UNICODE_CI = k FROM rows",
    "SELECT n, rand() FROM rows",
    "SELECT at + INTERVAL 1 MONTH FROM rows",
    "SELECT n FROM rows WHERE n > (SELECT avg(n) FROM rows)",
    "SELECT first(n) FROM rows",
    "SELECT collect_list(n) FROM rows",
    "SELECT explode_outer(tags) FROM rows",
    "SELECT * FROM VALUES (1), (2)",
    "SELECT k, session_window.end, count(*) FROM rows GROUP BY k, session_window(at, '3 days')",
    "SELECT count(*) FROM (SELECT s.end FROM (SELECT session_window AS s, k FROM rows "
    "GROUP BY session_window(at, '3 days'), k))",
    "SELECT k, sum(n) FROM rows GROUP BY k, session_window(at, if(n > 1, '1 day', '9 days'))",
]


@pytest.mark.parametrize("sql", [*(f"SELECT {each} FROM rows" for each in OF_ROWS), *SAME])
def test_queries_that_duckdb_knows(interpreted: SparkSession, sql: str) -> None:
    windows.register(interpreted)
    draw = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    for count in (0, 1, 60):
        found, want = both(interpreted, sql, rows(draw, count))
        assert found is not None, "not by DuckDB"
        assert found.schema.equals(want.schema) and told(found) == told(want)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_that_mean_the_same_to_both(interpreted: SparkSession, pattern: str) -> None:
    columns, texts = (
        jvm.ddl("s STRING"),
        [*TEXTS, "a\n", "abab", "ab\r\n", "10.0.0.1", "10.0.0.1\n", "host-7", "a\u2028"],
    )
    some = pa.Table.from_pylist(
        [{"s": each} for each in (*texts, "\n", "x@", "ABC", None)], stored.schema(columns)
    )
    found, want = both(interpreted, f"SELECT s, s RLIKE '{pattern}' FROM rows", some, columns=columns)
    assert found is not None and told(found) == told(want)


@pytest.mark.parametrize("sql", OF_TWO)
def test_joins_that_duckdb_knows(interpreted: SparkSession, sql: str) -> None:
    draw = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    found, want = both(interpreted, sql, rows(draw, 40, whole=5), rows(draw, 40, whole=5))
    assert found is not None, "not by DuckDB"
    assert found.schema.equals(want.schema) and told(found) == told(want)


@pytest.mark.parametrize("sql", OTHERWISE)
def test_queries_that_are_left_to_spark(interpreted: SparkSession, sql: str) -> None:
    assert both(interpreted, sql, rows(random.Random(1), 20))[0] is None


def test_texts_that_are_cast_to_a_collation_are_compared_as_spark_does(interpreted: SparkSession) -> None:
    for text in ("'A'", "'a'"):
        sql = f"SELECT CAST(s AS STRING COLLATE UNICODE_CI) = {text} FROM rows"
        found, want = both(interpreted, sql, rows(random.Random(1), 60))
        assert found is None or told(found) == told(want)


def test_texts_of_another_collation_are_sparks_wherever_they_stand(interpreted: SparkSession) -> None:
    columns = jvm.ddl("o STRUCT<s: STRING COLLATE UNICODE_CI, t: STRING COLLATE UNICODE_CI>")
    some = pa.Table.from_pylist([{"o": {"s": "a", "t": "A"}}, {"o": None}], stored.schema(columns))
    assert both(interpreted, "SELECT o.s = o.t FROM rows", some, columns=columns)[0] is None


@pytest.mark.parametrize("sql", ["SELECT l + l AS x FROM rows", "SELECT k, sum(l) AS x FROM rows GROUP BY k"])
def test_what_is_too_large_is_sparks_to_say(interpreted: SparkSession, sql: str) -> None:
    columns, here = jvm.ddl("k STRING, l BIGINT"), Here(interpreted)
    large = pa.Table.from_pylist([{"k": "a", "l": 2**63 - 1}] * 2, stored.schema(columns))

    def asked(frames: Frames) -> DataFrame:
        frames["rows"].createOrReplaceTempView("rows")
        return interpreted.sql(sql)

    few = Few(here, (), [{"rows": here.given(large, columns)}], asked)
    assert here.carried((), {"rows": here.given(large, columns)}, asked)({"rows": large}) is None
    with pytest.raises(ArithmeticException):
        _ = few.rows


def test_a_division_by_zero_is_sparks_to_say(interpreted: SparkSession) -> None:
    columns = jvm.ddl("a INT, b INT")
    some = pa.Table.from_pylist([{"a": 1, "b": 2}, {"a": None, "b": 1}], stored.schema(columns))
    for sql in ("SELECT a % b FROM rows", "SELECT a / b FROM rows", "SELECT a div b FROM rows"):
        found, want = both(interpreted, sql, some, columns=columns)
        assert found is not None and told(found) == told(want)
        zero = pa.concat_tables(
            [some, some.slice(0, 1).set_column(1, some.schema.field(1), pa.array([0], pa.int32()))]
        )
        with pytest.raises(ArithmeticException):
            both(interpreted, sql, zero, columns=columns)


# Random expressions: {type → (form, types of what it is made of)}
GRAMMAR: dict[str, Sequence[tuple[str, Sequence[str]]]] = {
    "INT": [
        ("n", ()),
        ("3", ()),
        ("({} + {})", ("INT", "INT")),
        ("({} - {})", ("INT", "INT")),
        ("({} * 3)", ("INT",)),
        ("pmod({}, 7)", ("INT",)),
        ("({} % 5)", ("INT",)),
        ("length({})", ("STRING",)),
        ("hour({})", ("TIMESTAMP",)),
        ("if({}, {}, {})", ("BOOLEAN", "INT", "INT")),
        ("coalesce({}, {})", ("INT", "INT")),
        ("o.a", ()),
    ],
    "BIGINT": [
        ("l", ()),
        ("({} + {})", ("BIGINT", "BIGINT")),
        ("CAST({} AS BIGINT)", ("INT",)),
        ("({} div 3)", ("BIGINT",)),
        ("unix_millis({})", ("TIMESTAMP",)),
        ("nullif({}, {})", ("BIGINT", "BIGINT")),
    ],
    "DOUBLE": [
        ("x", ()),
        ("({} * {})", ("DOUBLE", "DOUBLE")),
        ("({} - {})", ("DOUBLE", "DOUBLE")),
        ("CAST({} AS DOUBLE)", ("INT",)),
        ("({} / 3)", ("INT",)),
        ("greatest({}, {})", ("DOUBLE", "DOUBLE")),
    ],
    "DECIMAL": [("m", ()), ("q", ()), ("abs({})", ("DECIMAL",)), ("(m + {} % 5)", ("INT",)), ("(m * q)", ())],
    "STRING": [
        ("s", ()),
        ("k", ()),
        ("'a'", ()),
        ("concat({}, {})", ("STRING", "STRING")),
        ("CAST({} AS STRING)", ("BIGINT",)),
        ("CASE WHEN {} THEN {} ELSE {} END", ("BOOLEAN", "STRING", "STRING")),
    ],
    "BOOLEAN": [
        ("b", ()),
        ("({} = {})", ("STRING", "STRING")),
        ("({} < {})", ("DOUBLE", "DOUBLE")),
        ("({} >= {})", ("INT", "INT")),
        ("({} <=> {})", ("BIGINT", "BIGINT")),
        ("({} < {})", ("TIMESTAMP", "TIMESTAMP")),
        ("({} > {})", ("DECIMAL", "DECIMAL")),
        ("({} AND {})", ("BOOLEAN", "BOOLEAN")),
        ("({} OR {})", ("BOOLEAN", "BOOLEAN")),
        ("(NOT {})", ("BOOLEAN",)),
        ("({} IS NULL)", ("STRING",)),
        ("({} IN ('a', {}))", ("STRING", "STRING")),
    ],
    "TIMESTAMP": [
        ("at", ()),
        ("o.at", ()),
        ("({} + INTERVAL 90 SECONDS)", ("TIMESTAMP",)),
        ("date_trunc('MINUTE', {})", ("TIMESTAMP",)),
        ("CAST(CAST({} AS DATE) AS TIMESTAMP)", ("TIMESTAMP",)),
        ("timestamp_millis({})", ("INT",)),
    ],
}


def drawn(draw: random.Random, kind: str, depth: int) -> str:
    """A random expression of a type."""
    forms = [form for form in GRAMMAR[kind] if depth or not form[1]]
    form, parts = draw.choice(forms)
    return form.format(*(drawn(draw, part, depth - 1) for part in parts))


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in range(1, 6))])
def test_random_expressions(interpreted: SparkSession, part: int) -> None:
    draw = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    kinds, compared = [*GRAMMAR], 0
    for _ in range(6):
        columns = [f"{drawn(draw, draw.choice(kinds), 4)} AS c{at}" for at in range(20)]
        sql = f"SELECT {', '.join(columns)} FROM rows WHERE {drawn(draw, 'BOOLEAN', 3)} IS NOT FALSE"
        found, asked = each(interpreted, sql, rows(draw, 40))
        try:
            want = asked.toArrow()
        except ArithmeticException:
            assert found is None, sql
            continue
        assert found is not None and told(found) == told(want), sql
        compared += 1
    assert compared


def test_what_the_reference_project_asks_of_few_rows_is_asked_of_duckdb(spark: SparkSession) -> None:
    """But for sines and sessions."""
    project = load_project(ROOT)
    tables, left = analysis.analyse(spark, project), set()
    for name, table in project.tables.items():
        if table.process is not None or table.flows:
            continue
        streams = {
            each: analysis.input_columns(project, table, tables[each]) for each in project.streams(table)
        }
        inputs = {
            each: streams.get(each)
            or (
                project.references[each].schema(spark) if each in project.references else tables[each].columns
            )
            for each in table.sources
        }

        def made(frames: Frames, table: Any = table) -> DataFrame:
            return analysis.apply(spark, table, [frames[each] for each in table.sources])

        given = {each: stored.schema(columns).empty_table() for each, columns in inputs.items()}
        if Carried(spark, inputs, made)(given) is None:
            left.add(name)
    assert left == {"gold.bus_positions", "gold.web_sessions"}
