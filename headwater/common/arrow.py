"""Values of Arrow as Python has them, by whole columns: several times as fast as `to_pylist`, and equal.

pyarrow makes an object of its own of each value before it makes Python's. Types that are rare here go that
way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common.times import EPOCH

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, in microseconds


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
