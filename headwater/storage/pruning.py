"""Which files may hold rows with the keys of a batch's rows: by the bounds that the log has of each file.

A file is left out only where its bounds say that no such row is in it. They say nothing where they are
missing: floating-point columns have none, nor has a long text, a nested column, or one that the file lacks.
Those of times are cut to milliseconds, those of long texts to their beginnings, the greatest rounded up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.common.scratch import quoted
from headwater.storage import delta
from headwater.storage.stats import text

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_RANGES = 32  # in a condition of a merge, which looks at each of them for each row
_MILLISECOND = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reach:
    """Where values of a column lie: in one of some ranges, or they are NULL.

    Attributes:
        ranges: (least, greatest) of each, in order and apart; times in microseconds and days since the epoch.
        null: whether one is NULL.
    """

    ranges: tuple[tuple[Any, Any], ...]
    null: bool = False

    def meets(self, least: Any, greatest: Any) -> bool:
        """Whether one of the ranges meets this one."""
        at = bisect_left(self.ranges, least, key=lambda ends: ends[1])
        return at < len(self.ranges) and bool(self.ranges[at][0] <= greatest)


def upto(greatest: pa.Scalar) -> Reach:
    """Times up to this one."""
    return Reach(((_LEAST, _comparable(greatest).as_py()),))


def since(least: pa.Scalar) -> Reach:
    """Times from this one on."""
    return Reach(((_comparable(least).as_py(), _GREATEST),))


def has_bounds(kind: pa.DataType) -> bool:
    """Whether files have bounds of columns of this type."""
    return _comparable(pa.nulls(0, kind)) is not None


def reaches(rows: pa.Table, keys: Iterable[str]) -> dict[str, Reach]:
    """{key → where its values lie in these rows}, of those keys whose bounds can tell files apart."""
    found = {}
    for key in keys:
        values = _comparable(rows[key])
        if values is not None and "." not in key:  # as a nested column is called in what delta-rs tells
            there = pc.unique(values).drop_null()
            ordered = there.take(pc.array_sort_indices(there)).to_pylist()
            found[key] = Reach(tuple(zip(ordered, ordered, strict=True)), null=values.null_count > 0)
    return found


def apart(times: pa.ChunkedArray, least: int | None, most: int | None) -> Reach:
    """Times that are later than one of these by at least and at most so many microseconds; None: no bound."""
    there = pc.unique(_comparable(times)).drop_null().to_pylist()
    return _union(
        (_LEAST if least is None else time + least, _GREATEST if most is None else time + most)
        for time in there
    )


def between(starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> Reach | None:
    """Values from one of these on, up to the one beside it, NULL being no bound; None: no file has bounds."""
    low, high = _comparable(starts), _comparable(ends)
    if any(values is None or not pa.types.is_integer(values.type) for values in (low, high)):
        return None
    since, upto = low.cast(pa.int64()).fill_null(_LEAST), high.cast(pa.int64()).fill_null(_GREATEST)
    return _union(zip(since.to_pylist(), upto.to_pylist(), strict=True))


def _union(ranges: Iterable[tuple[int, int]]) -> Reach:
    """What lies in one of some ranges."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif low <= high:
            found.append((low, high))
    return Reach(tuple(found))


def holding(adds: pa.Table, wanted: Mapping[str, Reach]) -> list[str]:
    """The paths of the files that may hold a row whose values lie where they are wanted, in all columns.

    Args:
        adds: the files, as `delta.adds` has them.
        wanted: {column → where its value is to lie}.
    """
    out: set[str] = set()
    for column, reach in wanted.items():
        name = f"null_count.{column}"
        nulls = dict(zip(*_lists(adds, "path", name), strict=True)) if name in adds.column_names else {}
        for path, (least, greatest) in ends(adds, column).items():
            if not reach.meets(least, greatest) and not (reach.null and nulls.get(path) != 0):
                out.add(path)
    return [path for path in adds["path"].to_pylist() if path not in out]


def near(table: Path, adds: pa.Table | None, wanted: Mapping[str, Reach]) -> dict[str, int]:
    """{absolute path → bytes} of the files that may hold a row whose values lie where they are wanted.

    Args:
        table: where the table is.
        adds: its files, see `holding`; None: it has none.
        wanted: see `holding`.
    """
    if adds is None:
        return {}
    sizes = dict(zip(*_lists(adds, "path", "size_bytes"), strict=True))
    return {delta.located(table, path): sizes[path] for path in holding(adds, wanted)}


def ends(adds: pa.Table, column: str) -> dict[str, tuple[Any, Any]]:
    """{path → bounds of a column}, as `Reach` has them, of the files that have both.

    Args:
        adds: see `holding`.
        column: its name.
    """
    names = [f"min.{column}", f"max.{column}"]
    if not {*names} <= {*adds.column_names} or not has_bounds(kind := adds[names[0]].type):
        return {}
    wide = _MILLISECOND if pa.types.is_timestamp(kind) else 0
    found = zip(
        adds["path"].to_pylist(), *(_comparable(adds[name]).to_pylist() for name in names), strict=True
    )
    return {
        path: (least - wide, greatest + wide) if wide else (least, greatest)
        for path, least, greatest in found
        if least is not None and greatest is not None
    }


def conditions(rows: pa.Table, keys: Iterable[str]) -> list[str]:
    """Conditions on the table `t` that hold for every row which has the keys of one of `rows`.

    They let a merge leave out files by their bounds.
    """
    found = []
    for key, reach in reaches(rows, keys).items():
        name, kind = f"t.{quoted(key)}", rows.schema.field(key).type
        each = [_within(name, ends, kind) for ends in _few(reach.ranges)]
        if all(each):
            found.append(f"({' OR '.join([*map(str, each), *[f'{name} IS NULL'] * reach.null])})")
    return found


def not_over(column: str, until: pa.ChunkedArray) -> str | None:
    """A condition on the table `t` that holds for rows whose column is NULL, or no less than one of these.

    None: files have no bounds of such a column, or it can't be written: beyond the year 9999.
    """
    if not has_bounds(until.type):
        return None
    name, least = f"t.{quoted(column)}", pc.min(until)
    if not least.is_valid:
        return f"{name} IS NULL"
    try:
        return f"({name} IS NULL OR {name} >= {_literal(_comparable(least).as_py(), least.type, up=False)})"
    except OverflowError:
        return None


def _few(ranges: tuple[tuple[Any, Any], ...]) -> list[tuple[Any, Any]]:
    """Ranges that hold these, not too many: neighbours become one."""
    step = -(-len(ranges) // _RANGES) or 1
    parts = [ranges[at : at + step] for at in range(0, len(ranges), step)]
    return [(part[0][0], part[-1][1]) for part in parts]


def _within(name: str, ends: tuple[Any, Any], kind: pa.DataType) -> str | None:
    """That a column lies in a range; None where that can't be written: beyond the year 9999."""
    try:
        low, high = (_literal(end, kind, up=up) for end, up in zip(ends, (False, True), strict=True))
    except OverflowError:
        return None
    return f"{name} = {low}" if low == high else f"({name} >= {low} AND {name} <= {high})"


def _literal(value: Any, kind: pa.DataType, *, up: bool) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_timestamp(kind):
        return f"'{text(_EPOCH + timedelta(microseconds=value), up=up)}'"
    if pa.types.is_date32(kind):
        return f"'{date(1970, 1, 1) + timedelta(days=value)}'"
    return str(value)


def _comparable(values: Any) -> Any:
    """Values as numbers or texts in the order of the log's bounds; None where they have none to go by."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return values
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return values.cast(pa.int64())
    return None


def _lists(adds: pa.Table, *names: str) -> list[list[Any]]:
    return [adds[name].to_pylist() for name in names]
