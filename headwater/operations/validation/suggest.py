"""A first suite for a table, from what its rows are now, for a person to edit: `headwater quality suggest`.

One DuckDB query profiles each column of the newest version. What it says becomes expectations that the
table meets today, each of severity `warning` and with a note of what was seen: nothing is held back
before somebody has said so. Sets of values are taken from the data; read them before you commit them.
Columns with a dot or a backtick in their names are left out: Great Expectations can't name them to Spark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from headwater.errors import QualityError
from headwater.planner import analysis
from headwater.project.load import Project
from headwater.query import on_duckdb
from headwater.query.sources import Sources
from headwater.storage import delta, summary
from headwater.storage.lake import Lake
from headwater.storage.names import PARTIAL
from headwater.storage.places import KEYS

if TYPE_CHECKING:
    import duckdb

Expectation = dict[str, Any]

FEW = 20  # different values of a text that make a set
OFTEN = 10  # rows for each value of such a set, at least
GROWING = 0.1  # a whole number with more different values than this share of rows may be a counter or a time
# Shapes of a text, the strictest first; what Java and RE2 (DuckDB) read alike.
SHAPES = (
    "^[0-9]+$",
    "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "^[A-Za-z]+[0-9]+$",
    "^[A-Za-z]+-[0-9]+$",
    "^[0-9]{1,3}(\\.[0-9]{1,3}){3}$",
    "^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$",
    "^[A-Za-z0-9]+$",
    "^[A-Za-z0-9_.-]+$",
)


@dataclass(frozen=True)
class Profile:
    """What a column holds.

    Attributes:
        name, kind: of the column.
        rows, nulls, distinct: how many; `distinct` exact, of values that are not NULL.
        low, high: the least and the greatest number, or length of a text in characters.
        finite: whether no number is NaN or infinite.
        shape: the first of `SHAPES` that every text has.
        values: the different texts, where they are few.
    """

    name: str
    kind: DataType
    rows: int
    nulls: int
    distinct: int | None = None
    low: float | int | None = None
    high: float | int | None = None
    finite: bool = True
    shape: str | None = None
    values: tuple[str, ...] = ()


def suggest(project: Project, table: str) -> dict[str, Any]:
    """A suite, as `quality/<table>.json` would have it.

    Raises:
        QualityError: the table holds no rows yet.
        ProjectError: there is no such table.
    """
    project.definition(table)
    lake = Lake(project.conf.lake)
    if table not in lake.places():
        raise QualityError(
            f"{table} holds nothing yet",
            code="TABLE_EMPTY",
            table=table,
            hint=f"run: headwater run {table} --once",
        )
    place = lake.place(table)
    stored = StructType.fromJson(json.loads(delta.opened(place.path).schema().to_json()))
    sources = Sources(project.root, project.env, project.conf)
    with on_duckdb.open_views(sources, [sources.tables[table]]) as connection:
        columns = [f for f in stored if f.name != PARTIAL and not {".", "`"} & {*f.name}]
        profiles = [_profile(connection, table, f.name, f.dataType) for f in columns]
    rows = profiles[0].rows
    if not rows:
        raise QualityError(
            f"{table} holds no rows yet",
            code="TABLE_EMPTY",
            table=table,
            hint=f"run: headwater run {table} --once",
        )
    whole = table in project.raw or summary.changes_in_place(place)
    expectations = [*_of_table(rows, _keys(project, table), profiles)] if whole else []
    for profile in profiles:
        expectations += _of_column(profile)
    return {
        "name": table,
        "meta": {"about": f"Suggested from {rows:,} rows at version {summary.of(place).version}; edit it"},
        "expectations": expectations,
    }


def write(project: Project, table: str, suite: Mapping[str, Any]) -> Path:
    """Write a suite to `quality/<table>.json`; its path.

    Raises:
        QualityError: there is one already.
    """
    path = project.root / "quality" / f"{table}.json"
    path.parent.mkdir(exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text(suite))
    except FileExistsError:
        raise QualityError(
            f"{path} exists",
            code="SUITE_EXISTS",
            table=table,
            file=path,
            hint="without --write the suggestion is printed",
        ) from None
    return path


def text(suite: Mapping[str, Any]) -> str:
    """The suite as JSON for people: a line for each part of an expectation."""

    def lines(part: Mapping[str, Any], indent: str) -> str:
        found = (f"{indent}{json.dumps(key)}: {json.dumps(part[key], ensure_ascii=False)}" for key in part)
        return ",\n".join(found)

    head = {key: value for key, value in suite.items() if key != "expectations"}
    each = ",\n".join(f"    {{\n{lines(one, ' ' * 6)}\n    }}" for one in suite["expectations"])
    return f'{{\n{lines(head, "  ")},\n  "expectations": [\n{each}\n  ]\n}}\n'


def _profile(connection: duckdb.DuckDBPyConnection, table: str, name: str, kind: DataType) -> Profile:
    column = '"' + name.replace('"', '""') + '"'
    facts = {"rows": "count(*)", "nulls": f"count(*) - count({column})"}
    if not isinstance(kind, (ArrayType, MapType, StructType)):
        facts["distinct"] = f"count(DISTINCT {column})"
    if isinstance(kind, NumericType):
        facts |= {"low": f"min({column})", "high": f"max({column})"}
    if isinstance(kind, (DoubleType, FloatType)):
        facts["finite"] = f"coalesce(bool_and(isfinite({column})), true)"
    if isinstance(kind, StringType):
        facts |= {"low": f"min(length({column}))", "high": f"max(length({column}))"}
        shapes = (f"WHEN bool_and(regexp_matches({column}, '{shape}')) THEN '{shape}'" for shape in SHAPES)
        facts["shape"] = f"CASE {' '.join(shapes)} END"
    source = ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
    found = connection.execute(f"SELECT {', '.join(facts.values())} FROM {source}").fetchone()
    assert found is not None
    profile = Profile(name, kind, **dict(zip(facts, found, strict=True)))
    if not isinstance(kind, StringType) or not profile.distinct or not _is_set(profile):
        return profile
    of_column = f"SELECT DISTINCT {column} AS value FROM {source} WHERE {column} IS NOT NULL ORDER BY value"
    values = tuple(value for (value,) in connection.execute(of_column).fetchall())
    return Profile(**{**vars(profile), "values": values})


def _is_set(profile: Profile) -> bool:
    distinct, present = profile.distinct or 0, profile.rows - profile.nulls
    return distinct <= FEW and present >= OFTEN * distinct


def _keys(project: Project, table: str) -> tuple[str, ...]:
    """The columns that identify a row: where Kafka had it, or what an aggregate groups by (starts Spark)."""
    if table in project.raw:
        return tuple(KEYS)
    from headwater.runtime import sessions

    return analysis.analyse(sessions.start(project.conf), project)[table].keys


def _of_table(rows: int, keys: tuple[str, ...], profiles: list[Profile]) -> Iterator[Expectation]:
    seen = f"{rows:,} rows"
    yield _expect("expect_table_row_count_to_be_between", seen, min_value=1)
    if len(keys) > 1:
        yield _expect(
            "expect_compound_columns_to_be_unique",
            f"{seen}, told apart by these columns",
            column_list=[*keys],
        )
    for profile in profiles:
        if (keys == (profile.name,) or not keys) and profile.distinct == rows:
            yield _expect("expect_column_values_to_be_unique", seen, column=profile.name)


def _of_column(profile: Profile) -> Iterator[Expectation]:
    name, kind = profile.name, type(profile.kind).__name__
    present = profile.rows - profile.nulls
    yield _expect("expect_column_values_to_be_of_type", profile.kind.simpleString(), column=name, type_=kind)
    if not profile.nulls:
        yield _expect("expect_column_values_to_not_be_null", f"{present:,} rows, no NULL", column=name)
    if not present:
        return
    if isinstance(profile.kind, NumericType):
        yield from _of_numbers(profile)
    elif profile.values:
        seen = f"{len(profile.values)} different in {present:,} rows"
        yield _expect("expect_column_values_to_be_in_set", seen, column=name, value_set=[*profile.values])
    elif isinstance(profile.kind, StringType):
        yield from _of_texts(profile)


def _of_numbers(profile: Profile) -> Iterator[Expectation]:
    """Bounds around what was seen; none above a whole number with many values: it may grow."""
    if not profile.finite or profile.low is None or profile.high is None:
        return
    present = profile.rows - profile.nulls
    bounds = {"min_value": _outward(profile.low, up=False)}
    seen = f"min {profile.low}, max {profile.high} in {present:,} rows"
    whole = isinstance(profile.kind, IntegralType)
    if whole and profile.distinct is not None and profile.distinct > max(FEW, GROWING * present):
        seen += "; it may grow, so no max_value"
    else:
        bounds["max_value"] = _outward(profile.high, up=True)
    yield _expect("expect_column_values_to_be_between", seen, column=profile.name, **bounds)


def _of_texts(profile: Profile) -> Iterator[Expectation]:
    present = profile.rows - profile.nulls
    seen = f"{profile.low} to {profile.high} characters, {profile.distinct:,} different in {present:,} rows"
    if profile.shape:
        yield _expect("expect_column_values_to_match_regex", seen, column=profile.name, regex=profile.shape)
    elif profile.low is not None and profile.high is not None:
        bounds = {"min_value": min(1, int(profile.low)), "max_value": int(_outward(profile.high, up=True))}
        yield _expect("expect_column_value_lengths_to_be_between", seen, column=profile.name, **bounds)


def _expect(kind: str, seen: str, **kwargs: Any) -> Expectation:
    return {"type": kind, "kwargs": kwargs, "severity": "warning", "notes": f"Seen: {seen}."}


def _outward(value: float | int | Decimal, *, up: bool) -> float | int:
    """The next number with two digits, away from what was seen: 97.3 → 98, 1234 → 1300, -0.07 → -0.07."""
    exact = Decimal(str(value))
    if not exact:
        return 0
    step = Decimal(10) ** (exact.adjusted() - 1)
    scaled = exact / step
    rounded = (math.ceil(scaled) if up else math.floor(scaled)) * step
    return int(rounded) if rounded == int(rounded) else float(rounded)
