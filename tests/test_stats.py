"""Statistics of files: readers skip by them, and no row is ever hidden."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import query
from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import pruning, stats
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("d", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
        ("b", pa.binary()),
        ("p", pa.struct([("n", pa.int64())])),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
LONG = "z" * 31

TIMES = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([EPOCH - MICRO, EPOCH + MICRO, EPOCH + timedelta(microseconds=999_999)]),
)
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(),
        "s": st.none() | st.text(max_size=40) | st.sampled_from([LONG, LONG + "za", LONG + "\U0010ffff" * 3]),
        "ts": st.none() | TIMES,
        "day": st.none() | st.dates(),
        "d": st.none() | st.decimals(-99999999, 99999999, places=2),
        "ok": st.none() | st.booleans(),
        "b": st.none() | st.binary(max_size=40),
        "p": st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(-5, 5)}),
    }
)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(rows=st.lists(ROW, max_size=12), group=st.integers(1, 5))
def test_bounds_hold_for_every_row(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], group: int
) -> None:
    file = tmp_path_factory.mktemp("stats") / "f.parquet"
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), file, row_group_size=group)
    count, text = stats.of(file)
    found = json.loads(text, parse_constant=pytest.fail)
    assert count == found["numRecords"] == len(rows)
    for name in COLUMNS.names:
        values = [row[name] for row in rows if row[name] is not None]
        if name in found["nullCount"]:
            assert found["nullCount"][name] == len(rows) - len(values)
        assert (name in found["minValues"]) == (name in found["maxValues"])
        if name in found["minValues"]:
            low, high = (read(found[end][name], name) for end in ("minValues", "maxValues"))
            assert all(low <= value <= high for value in values)
    assert not {"x", "d", "ok", "b", "p"} & set(found["minValues"])


def read(bound: Any, name: str) -> Any:
    """A bound as a reader of the log takes it."""
    if name == "ts":
        return datetime.fromisoformat(bound)
    return date.fromisoformat(bound) if name == "day" else bound


def test_bounds_are_there_where_they_help(tmp_path: Path) -> None:
    file = tmp_path / "f.parquet"
    at = EPOCH - MICRO
    row = {"n": 5, "s": "é", "ts": at, "day": date(1969, 12, 31), "x": 1.5, "d": 1}
    pq.write_table(pa.Table.from_pylist([row, {}], COLUMNS), file)
    found = json.loads(stats.of(file)[1])
    assert found["minValues"] == {"n": 5, "s": "é", "ts": "1969-12-31T23:59:59.999Z", "day": "1969-12-31"}
    assert found["maxValues"] == {"n": 5, "s": "é", "ts": "1970-01-01T00:00:00.000Z", "day": "1969-12-31"}
    assert found["nullCount"]["ts"] == 1


def test_times_beyond_pythons_give_no_bounds(tmp_path: Path) -> None:
    """Microseconds taken for milliseconds are in the year 55,000: one such record must not stop a flow."""
    for micros in (1_700_000_000_000_000_000, -(2**62)):
        file = tmp_path / f"{micros}.parquet"
        column = pa.array([0, micros], pa.int64()).cast(COLUMNS.field("ts").type)
        pq.write_table(pa.table({"ts": column, "n": [1, 2]}), file)
        count, text = stats.of(file)
        assert count == 2 and json.loads(text)["minValues"] == {"n": 1}
        assert pruning.conditions(pa.table({"ts": column}), ["ts"]) == []
    assert stats.newest(file, "ts") == 0


def test_newest_is_in_milliseconds(tmp_path: Path) -> None:
    file = tmp_path / "f.parquet"
    times = [EPOCH, EPOCH + timedelta(seconds=1, microseconds=1_999), None]
    pq.write_table(pa.table({"ts": pa.array(times, COLUMNS.field("ts").type)}), file, row_group_size=1)
    assert stats.newest(file, "ts") == 1_001
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"ts": pa.array([None], COLUMNS.field("ts").type)}), empty)
    assert stats.newest(empty, "ts") is None


def test_a_merge_finds_rows_at_the_ends_of_its_bounds(tmp_path: Path) -> None:
    columns = pa.schema([("ts", COLUMNS.field("ts").type), ("n", pa.int64())])
    times = [
        EPOCH - MICRO,
        EPOCH,
        EPOCH + MICRO,
        EPOCH - timedelta(days=500_000),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]
    aggregate = Aggregate((Output("ts", "key"), Output("n", "count")), window="time")
    target = Target(Lake(tmp_path).create("gold.t", columns, properties={}))
    far = pa.array([1_700_000_000_000_000_000], pa.int64()).cast(columns.field("ts").type)
    parts = [pa.table({"ts": pa.array([at], columns.field("ts").type), "n": [1]}) for at in times]
    parts.append(pa.table({"ts": far, "n": [1]}))
    for sequence, part in enumerate([*parts, *parts, pa.concat_tables(parts)]):
        target.merge(part, aggregate.keys, aggregate.merged(part.schema), Identity("gold.t", 1, sequence, {}))
    found = pa.table(target._table.to_pyarrow_table())
    assert found["n"].to_pylist() == [3] * len(parts)


# As Spark and DuckDB read them


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Rows of which each stands in a file of its own, or with two others."""
    times = [EPOCH - MICRO, EPOCH, EPOCH + MICRO, EPOCH - timedelta(days=700_000, microseconds=-1)]
    times += [
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1_500, tzinfo=UTC),
    ]
    strings = [
        "",
        "a",
        LONG,
        LONG + "z",
        LONG + "zz",
        "é",
        "\U0001f600",
        "\U00020000",
        "\U0010fffe",
        "\uffff",
        "it's",
    ]
    floats = [math.nan, -0.0, 0.0, 5e-324, 1.7e308, -math.inf, 1.5]
    numbers = [-(2**63), 2**63 - 1, 2**53 + 1, 0, -1]
    # Not 1582-10-05 to 14, which Spark itself does not find in any Parquet file by an equation.
    days = [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1582, 10, 4), date(1582, 10, 15)]
    made = [{"ts": v} for v in times] + [{"s": v} for v in strings] + [{"x": v} for v in floats]
    made += [{"n": v} for v in numbers] + [{"day": v} for v in days] + [{}]
    return [{**dict.fromkeys(COLUMNS.names), **row} for row in made]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> Path:
    """A project whose table silver.t holds the rows in files of one and of three."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    shuffled = random.Random(seed).sample(rows, len(rows))
    root: Path = tmp_path_factory.mktemp("project")
    for name, text in {
        "conf/local.yaml": "",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/t.py": "import headwater as hw\n@hw.table(source='bronze.raw', decode=hw.json('n BIGINT'))\n"
        "def t(raw):\n    return raw\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    target = Target(Lake(root / ".headwater" / "lake").create("silver.t", COLUMNS, properties={}))
    parts = [[row] for row in rows] + [shuffled[at : at + 3] for at in range(0, len(rows), 3)]
    files = []
    folder = target.place.path / "000000000000-test"
    folder.mkdir()
    for number, part in enumerate(parts):
        # A column with NaN has no bounds in its footer, as Spark writes it: DuckDB skips by those, too.
        bounded = ["n", "s", "ts", "day"]
        pq.write_table(
            pa.Table.from_pylist(part, COLUMNS), folder / f"{number}.parquet", write_statistics=bounded
        )
        files.append(f"{folder.name}/{number}.parquet")
    target.append(files, Identity("silver.t", 1, 0, {}))
    return root


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, str):
        return "concat('" + "', chr(39), '".join(value.split("'")) + "')"
    return f"CAST('{value}' AS BIGINT)"


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_no_row_is_hidden(engine: Any, project: Path, rows: list[dict[str, Any]], request: Any) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    probes: list[tuple[str, Any, str]] = []
    for name in ("n", "s", "ts", "day", "x"):
        for value in {repr(row[name]): row[name] for row in rows if row[name] is not None}.values():
            probes += [(name, value, sign) for sign in ("=", "<=", ">=")]
    probes += [("s", None, "IS NULL"), ("ts", None, "IS NULL"), ("x", None, "IS NOT NULL")]
    if engine == "spark":  # a scan takes it a second
        probes = [p for p in probes if p[2] == "=" and (p[0] == "ts" or str(p[1]).startswith(LONG))]
    selects = []
    for number, (name, value, sign) in enumerate(probes):
        right = "" if value is None else literal(value)
        selects.append(f"SELECT {number} AS i, count(*) AS c FROM silver.t WHERE {name} {sign} {right}")
    found: dict[int, int] = {}
    for at in range(0, len(selects), 20):
        sql = " UNION ALL ".join(selects[at : at + 20])
        found.update(query.run(sql, project=project, engine=engine).rows)
    for number, (name, value, sign) in enumerate(probes):
        wanted = 2 * sum(holds(row[name], sign, value) for row in rows)
        assert found[number] == wanted, (name, sign, value)


def holds(mine: Any, sign: str, value: Any) -> bool:
    """The condition as SQL has it; NaN is the greatest number and equal to itself, in Spark and in DuckDB."""
    if sign.startswith("IS"):
        return (mine is None) == (sign == "IS NULL")
    if mine is None:
        return False
    one, other = order(mine), order(value)
    return bool({"=": one == other, "<=": one <= other, ">=": one >= other}[sign])


def order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


def test_a_file_that_is_older_than_a_column_says_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "old.parquet"
    pq.write_table(pa.table({"n": [1]}), file)
    assert stats.span(file, "ts") is None and stats.newest(file, "ts") is None
    assert stats.payload(file, "ts") == 0
