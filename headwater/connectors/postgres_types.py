"""Columns and values as PostgreSQL has them.

https://www.postgresql.org/docs/15/datatype.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headwater.common.values import plain

_TYPES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_int64, "bigint"),
    (pa.types.is_int32, "integer"),
    (lambda kind: pa.types.is_int16(kind) or pa.types.is_int8(kind), "smallint"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_float32, "real"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date32, "date"),
]

# What a person may have made a column of instead: it takes every value.
_WIDER = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying",),
}


_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def takes(have: str, kind: str) -> bool:
    """Whether a column of type `have` takes every value of another as it is; both in PostgreSQL's words."""
    have = have.replace("timestamp(6)", "timestamp")
    if have in (kind, *_WIDER.get(kind, ())):
        return True
    wanted, there = _NUMERIC.fullmatch(kind), _NUMERIC.fullmatch(have)
    if wanted is None or there is None:
        return wanted is not None and have == "numeric"
    (precision, scale), (of_there, behind) = (map(int, each.groups()) for each in (wanted, there))
    return behind >= scale and of_there - behind >= precision - scale


def column_type(kind: pa.DataType) -> str:
    """PostgreSQL's type for a column."""
    for is_it, name in _TYPES:
        if is_it(kind):
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return "jsonb"


def sender(kind: str) -> Callable[[Any], Any]:
    """How a value of a type is sent: what PostgreSQL can't hold in text, U+0000, becomes U+FFFD."""
    if kind == "text":
        return lambda value: value.replace("\0", "\ufffd") if value is not None else None
    if kind == "jsonb":
        return lambda value: (
            json.dumps(_held(plain(value)), ensure_ascii=False) if value is not None else None
        )
    return lambda value: value


def _held(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {_held(key): _held(inner) for key, inner in value.items()}
    return [_held(inner) for inner in value] if isinstance(value, list) else value
