"""Rows of files as JSON, without loss: numbers have all their digits, decimals too (12.50).

Times are ISO 8601 in UTC, `2026-01-31T06:00:00.250000Z`; a timestamp without a zone is UTC. Binary values are
base64. NaN and infinite numbers, which JSON has not, are texts: "NaN". The entries of a map are the fields of
an object.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa


def rows_as_json(rows: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object with a field for each column.

    Raises:
        ValueError: a column of another type.
    """
    keys = [json.dumps(name, ensure_ascii=False) + ":" for name in rows.schema.names]
    texts = [
        [write(value) for value in _in_utc(column).to_pylist()]
        for column, write in zip(rows.columns, map(_writer, rows.schema), strict=True)
    ]
    found = (map("".join, zip(keys, row, strict=True)) for row in zip(*texts, strict=True))
    return pa.array([f"{{{','.join(fields)}}}".encode() for fields in found], pa.binary())


def _in_utc(column: pa.Array) -> pa.Array:
    """A column with its times in UTC: those of another zone Python has not, near the ends of its own."""
    kind = _utc(column.type)
    return column if kind == column.type else column.cast(kind)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([_utc_field(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_utc_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_utc_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_utc_field(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _utc_field(kind.item_field), kind.keys_sorted)
    return kind


def _utc_field(field: pa.Field) -> pa.Field:
    return field.with_type(_utc(field.type))


def value_as_json(value: Any) -> str:
    """A value of a file that has its types beside it, as Python reads it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return _braced((str(key), value_as_json(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(value_as_json, value)) + "]"
    for known, written in _PYTHON:
        if isinstance(value, known):
            return written(value)
    return _quoted(value)


def _writer(field: pa.Field) -> Callable[[Any], str]:
    write = _of_type(field.type, field.name)
    return lambda value: "null" if value is None else write(value)


def _of_type(kind: pa.DataType, name: str) -> Callable[[Any], str]:
    """How a value of a type, which is not NULL, is written as JSON."""
    if isinstance(kind, (pa.UuidType, pa.JsonType)):
        return _quoted
    if pa.types.is_dictionary(kind):
        return _of_type(kind.value_type, name)
    if pa.types.is_struct(kind):
        fields = [(kind.field(at).name, _writer(kind.field(at))) for at in range(kind.num_fields)]
        return lambda value: _braced((key, write(value[key])) for key, write in fields)
    if pa.types.is_map(kind):
        write = _writer(kind.item_field)
        return lambda pairs: _braced((str(key), write(value)) for key, value in pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        write = _writer(kind.value_field)
        return lambda values: "[" + ",".join(map(write, values)) + "]"
    for known, written in _PLAIN:
        if known(kind):
            return written
    raise ValueError(f"column {name} is {kind}, which has no form in JSON")


def _braced(fields: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in fields) + "}"


def _quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _number(value: float) -> str:
    text = json.dumps(float(value))
    return text if math.isfinite(value) else f'"{text}"'


def _time(value: datetime) -> str:
    at = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return f'"{at.isoformat().removesuffix("+00:00")}Z"'


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _nothing(_: Any) -> str:
    return "null"


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_null, _nothing),
    (pa.types.is_boolean, json.dumps),
    (pa.types.is_integer, str),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, lambda value: f'"{value.isoformat()}"'),
    (pa.types.is_time, lambda value: f'"{value.isoformat()}"'),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _quoted),
    (
        lambda kind: any(
            known(kind)
            for known in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
        ),
        _binary,
    ),
)
_PYTHON: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (bool, json.dumps),  # before int, which it is too
    (int, str),
    (float, _number),
    (Decimal, lambda value: format(value, "f")),
    (datetime, _time),  # before date, which it is too
    (date, lambda value: f'"{value.isoformat()}"'),
    (time, lambda value: f'"{value.isoformat()}"'),
    (bytes, _binary),
)
