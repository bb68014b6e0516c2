"""Rows as documents of OpenSearch: the mapping of a table's columns, a row's id, and its fields.

https://docs.opensearch.org/latest/field-types/
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.common.values import plain

Field = dict[str, Any]

LONGEST_ID = 512  # bytes
LONGEST_TERM = 32_766 // 4  # characters; a longer text is kept, and not found by an exact search
# What OpenSearch says of each document, and refuses in one.
_RESERVED = {
    *("_data_stream_timestamp", "_doc_count", "_field_names", "_id", "_ignored", "_index", "_nested_path"),
    *("_primary_term", "_routing", "_seq_no", "_source", "_type", "_version"),
}
_TEXT: Field = {"type": "keyword", "ignore_above": LONGEST_TERM, "fields": {"text": {"type": "text"}}}
_KEPT: Field = {"type": "object", "enabled": False}  # in the document, whatever it is, and not searched
# A field of these refuses NaN and infinities; so they are kept in the document and not searched.
_DOUBLE: Field = {"type": "double", "ignore_malformed": True}
_FLOAT: Field = {"type": "float", "ignore_malformed": True}

_FIELDS: list[tuple[Callable[[pa.DataType], bool], Field]] = [
    (pa.types.is_int64, {"type": "long"}),
    (pa.types.is_int32, {"type": "integer"}),
    (pa.types.is_int16, {"type": "short"}),
    (pa.types.is_int8, {"type": "byte"}),
    (pa.types.is_float64, _DOUBLE),
    (pa.types.is_float32, _FLOAT),
    (pa.types.is_decimal, {"type": "double"}),
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_string, _TEXT),
    (pa.types.is_binary, {"type": "binary"}),
    (pa.types.is_date32, {"type": "date"}),
    (pa.types.is_timestamp, {"type": "date"}),
]
# What a person may have made a field of instead: it takes every value.
_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
    "date": ("date_nanos",),
    "keyword": ("text", "wildcard"),
    "object": ("nested", "flat_object"),
}


def mapping(columns: pa.Schema) -> dict[str, Field]:
    """{field → how it is indexed} of a table's columns.

    Raises:
        ValueError: OpenSearch has no such field.
    """
    fields = {_name(column.name): _field(column) for column in columns}
    if len(fields) < len(columns):
        raise ValueError("two of its columns become one field; rename one")
    return fields


def misfit(want: Mapping[str, Field], have: Mapping[str, Field], within: str = "") -> str | None:
    """The first field of an index that does not take every value of the table, in words."""
    for name, field in want.items():
        kind, found = field.get("type", "object"), have.get(name)
        other = None if found is None else found.get("type", "object")
        if other not in (kind, *_WIDER.get(kind, ())):
            return f"its field {within}{name} is {other or 'missing'}, not {kind}"
        if found and "properties" in field and other != "flat_object" and found.get("enabled", True):
            inner = misfit(field["properties"], found.get("properties", {}), f"{within}{name}.")
            if inner is not None:
                return inner
    return None


def identity(keys: Sequence[Any]) -> str:
    """The id of the row with these keys: they as JSON, or its SHA-256 where that is too long for an id."""
    text = json.dumps([plain(key) for key in keys], ensure_ascii=False, separators=(",", ":"))
    return text if len(text.encode()) <= LONGEST_ID else hashlib.sha256(text.encode()).hexdigest()


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it (`headwater.query.result.write` says how), each column under its field's name."""
    return {_name(name): plain(value) for name, value in row.items()}


def _name(column: str) -> str:
    return f"_{column}" if column in _RESERVED else column


def _field(column: pa.Field) -> Field:
    if "." in column.name or not column.name.strip():
        raise ValueError(f"its column '{column.name}' can't be a field's name, of which a dot makes a path")
    kind = column.type
    while pa.types.is_list(kind):  # a field holds one value or many
        kind = kind.value_type
    if pa.types.is_struct(kind):
        return {"properties": {inner.name: _field(inner) for inner in kind}}
    return next((field for is_it, field in _FIELDS if is_it(kind)), _KEPT)
