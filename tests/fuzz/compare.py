"""Whether two tables hold the same rows: as often, in whatever order.

NaN is like NaN and -0.0 like 0.0, as Spark has it. Of sums and averages of doubles the last bits depend on
the order of addition (docs/definitions.md): they may differ by 1e-9 of themselves, or by 1e-12 of all that
was added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as plain values that can be compared and hashed: times in microseconds, days since the epoch."""
    found = [table[name].cast(_plain(table.schema.field(name).type)).to_pylist() for name in columns]
    return [tuple(map(_value, row)) for row in zip(*found, strict=True)] if columns else [()] * len(table)


def differences(left: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]) -> str:
    """How two lists of rows differ; "": they do not."""
    ours, theirs = Counter(left), Counter(right)
    return _said(list((ours - theirs).elements()), list((theirs - ours).elements()))


def group_differences(
    left: Mapping[Any, Mapping[str, Any]],
    right: Mapping[Any, Mapping[str, Any]],
    sizes: Mapping[Any, Mapping[str, float]],
) -> str:
    """How two {keys → {column → value}} differ; "": they do not.

    Args:
        left, right: the groups.
        sizes: {keys → {column of doubles → the sum of all that it adds, as positive numbers}}.
    """
    ours = [
        (key, dict(values))
        for key, values in left.items()
        if not _alike(values, right.get(key), sizes.get(key, {}))
    ]
    theirs = [
        (key, dict(values))
        for key, values in right.items()
        if not _alike(left.get(key), values, sizes.get(key, {}))
    ]
    return _said(ours, theirs)


def grouped(table: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> dict[Any, dict[str, Any]]:
    """The rows of a table by their keys.

    Raises:
        AssertionError: two have the same.
    """
    found: dict[Any, dict[str, Any]] = {}
    for key, values in zip(rows(table, keys), rows(table, columns), strict=True):
        assert key not in found, f"two rows have the keys {key}"
        found[key] = dict(zip(columns, values, strict=True))
    return found


def _alike(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, sizes: Mapping[str, float]
) -> bool:
    if left is None or right is None:
        return False
    return all(_near(value, right[name], sizes.get(name)) for name, value in left.items())


def _near(left: Any, right: Any, size: float | None) -> bool:
    if left == right or size is None or not isinstance(left, float) or not isinstance(right, float):
        return bool(left == right)
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12 * size)


def _said(left: list[Any], right: list[Any]) -> str:
    if not left and not right:
        return ""
    shown = [
        f"    {side} {row!r}"[:600]
        for side, all_rows in (("<", left), (">", right))
        for row in sorted(all_rows, key=repr)[:3]
    ]
    return "\n".join([f"{len(left)} rows on the left alone, {len(right)} on the right", *shown])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [(kind.field(at).name, _plain(kind.field(at).type)) for at in range(kind.num_fields)]
        )
    return kind


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(_value, value))
    return tuple((name, _value(each)) for name, each in value.items()) if isinstance(value, dict) else value
