"""Two tables compared, as a test does it: what differs is said row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from headwater.common.diff import NOTHING, Side
from headwater.operations.rebuild.compare import compare
from headwater.testing.rows import Rows

Table: TypeAlias = pa.Table | DataFrame | Rows | Sequence[Mapping[str, Any]]


def assert_same(left: Table, right: Table, *, keys: Sequence[str] = (), limit: int = 10) -> None:
    """Check that two tables hold the same rows, as often, in whatever order; doubles up to nine digits.

    Args:
        left: rows as `Project.rows` gives them, as dicts, as Arrow or as a DataFrame.
        right: what they are compared with.
        keys: columns that tell rows apart: of a row that both sides have, what differs is said.
        limit: so many rows of each side are shown.

    Raises:
        AssertionError: they differ; it says which rows are missing, too many or other.
    """
    one, two = _arrow(left), _arrow(right)
    with TemporaryDirectory() as folder:
        found = compare("rows", _side(one, Path(folder, "left")), _side(two, Path(folder, "right")), limit)
    said = []
    if found.columns and one.column_names and two.column_names:
        for side, other, name in ((one, two, "left"), (two, one, "right")):
            only = [column for column in side.column_names if column not in other.column_names]
            said += [f"only {name} has the column {column}" for column in only]
    before, after = list(found.only_before), list(found.only_after)
    for key in {_key(row, keys): None for row in before} if keys else ():
        ours, theirs = ([row for row in rows if _key(row, keys) == key] for rows in (before, after))
        if len(ours) == len(theirs) == 1:
            before.remove(ours[0])
            after.remove(theirs[0])
            said.append(_other(ours[0], theirs[0], keys))
    said += _only(before, found.gone, limit, "left", "right") + _only(
        after, found.new, limit, "right", "left"
    )
    if said:
        counts = f"left has {found.before} rows, right {found.after}"
        raise AssertionError("\n  ".join([f"the tables differ: {counts}", *said]))


def _arrow(rows: Table) -> pa.Table:
    if isinstance(rows, DataFrame):
        return rows.toArrow()
    if isinstance(rows, pa.Table):
        return rows
    found = [dict(row) for row in (rows.dicts() if isinstance(rows, Rows) else rows)]
    nothing = dict.fromkeys(name for row in found for name in row)
    return pa.Table.from_pylist([{**nothing, **row} for row in found])


def _side(rows: pa.Table, file: Path) -> Side:
    if not rows.column_names:  # of no rows, so no columns are known
        return NOTHING
    pq.write_table(rows, file)
    return Side([str(file)], rows.schema)


def _key(row: Mapping[str, Any], keys: Iterable[str]) -> str:
    return repr([row[key] for key in keys])


def _other(ours: Mapping[str, Any], theirs: Mapping[str, Any], keys: Sequence[str]) -> str:
    differs = [
        f"{name} is {ours[name]!r} on the left, {theirs[name]!r} on the right"
        for name in ours
        if ours[name] != theirs[name]
    ]
    return f"of {_said({key: ours[key] for key in keys})}: {'; '.join(differs)}"


def _only(rows: Sequence[Mapping[str, Any]], count: int, limit: int, here: str, there: str) -> list[str]:
    said = [f"only {here} has {_said(row)}" for row in rows]
    return [*said, f"… of {count} rows that {there} lacks"] if count > limit else said


def _said(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
