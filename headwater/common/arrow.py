"""Values of Arrow as Python has them, by whole columns: several times as fast as `to_pylist`, and equal.

pyarrow makes an object of its own of each value before it makes Python's. Types that are rare here go that
way.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common.times import EPOCH

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, in microseconds
_DAY = 86_400_000_000
_IN_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, as `table.to_pylist()` gives them."""
    names = table.column_names
    if not names:
        return [{} for _ in range(len(table))]
    columns = (values(column) for column in table.columns)
    return [dict(zip(names, row)) for row in zip(*columns, strict=True)]  # noqa: B905  # half of the time


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column, as `column.to_pylist()` gives them."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values(chunk)]
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _with_nulls(column, column.fill_null(0).to_numpy(zero_copy_only=False).tolist())
    if pa.types.is_string(kind) or pa.types.is_boolean(kind):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return _times(column)
    if pa.types.is_struct(kind) and kind.num_fields:
        names = [kind.field(at).name for at in range(kind.num_fields)]
        fields = [values(field) for field in column.flatten()]
        return _with_nulls(column, [dict(zip(names, row)) for row in zip(*fields, strict=True)])  # noqa: B905
    if pa.types.is_list(kind):
        return _lists(column)
    found = column.to_pylist()
    return found


def exact(value: Any, kind: pa.DataType) -> Any:
    """A value that a column of a type takes; pyarrow would cut what is finer.

    Raises:
        ValueError: it would have to be cut.
    """
    if isinstance(value, float | Decimal) and pa.types.is_integer(kind):
        if value != int(value):
            raise ValueError(f"{value} is no whole number")
        return int(value)
    if isinstance(value, Decimal) and pa.types.is_floating(kind):
        return float(value)
    if isinstance(value, datetime) and pa.types.is_date(kind):
        if value.time() != time():
            raise ValueError(f"{value} is no date")
        return value.date()
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        if unknown := sorted(value.keys() - fields.keys()):
            raise ValueError(f"unknown: {', '.join(unknown)}")
        return {name: exact(value.get(name), of) for name, of in fields.items()}
    if isinstance(value, list | tuple) and pa.types.is_list(kind):
        return [exact(each, kind.value_type) for each in value]
    return value


def beyond(rows: pa.RecordBatch) -> str | None:
    """A time or date that Python has not, of the first column that has one, in words.

    Python has those of the years 1 to 9999.
    """
    for name in rows.schema.names:
        if (found := _beyond(rows[name])) is not None:
            return f"{name} is {found}, and only times of the years 1 to 9999 are taken here"
    return None


def _beyond(column: pa.Array) -> str | None:
    """The first such value of a column."""
    kind = column.type
    if pa.types.is_struct(kind):
        within = column.flatten()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        within = [column.flatten()]
    elif pa.types.is_dictionary(kind):
        within = [column.dictionary]
    elif pa.types.is_map(kind):
        within = [column.keys, column.items]
    else:
        return _beyond_flat(column)
    return next(filter(None, map(_beyond, within)), None)


def _beyond_flat(column: pa.Array) -> str | None:
    """That of a column whose type has no other within it."""
    kind = column.type
    if pa.types.is_date32(kind):
        since, unit = column.view(pa.int32()), _DAY
    elif pa.types.is_date64(kind):
        since, unit = column.view(pa.int64()), _IN_MICROSECONDS["ms"]
    elif pa.types.is_timestamp(kind) and kind.unit in _IN_MICROSECONDS:
        since, unit = column.view(pa.int64()), _IN_MICROSECONDS[kind.unit]
    else:
        return None
    ends = pc.min_max(since).as_py()
    first, last = _FIRST // unit, _LAST // unit
    if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
        return None
    out = pc.or_(pc.less(since, first), pc.greater(since, last))
    local = column.view(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else column
    return str(local.filter(out)[0].cast(pa.string()))


def _lists(column: pa.ListArray) -> list[Any]:
    within = values(column.flatten())
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).tolist()
    return _with_nulls(column, [within[start:end] for start, end in zip([0, *ends], ends)])  # noqa: B905


def _times(column: pa.Array) -> list[Any]:
    since = column.cast(pa.int64())
    ends = pc.min_max(since).as_py()
    if ends["min"] is None:
        return [None] * len(column)
    if ends["min"] < _FIRST or ends["max"] > _LAST:
        found: list[Any] = column.to_pylist()  # says what is wrong
        return found
    epoch = EPOCH if column.type.tz is not None else EPOCH.replace(tzinfo=None)
    later = since.fill_null(0).to_numpy(zero_copy_only=False).astype("timedelta64[us]").astype(object)
    return _with_nulls(column, [epoch + each for each in later])


def _with_nulls(column: pa.Array, found: list[Any]) -> list[Any]:
    """Values, with None where the column has NULL."""
    if column.null_count:
        for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
            found[at] = None
    return found
