"""Records without a value, as the rows that they delete: the fields of the key, all others NULL.

In a topic that Kafka compacts such a record deletes what went before with the same key:
https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, NumericType

from headwater.connectors.decode.contract import Fields


def filled(values: pa.Array, keys: pa.Array, taken: Fields) -> pa.Array:
    """The values, with one made of its key for each tombstone; of one without a key there is none.

    A key is the text of the one column, perhaps as JSON (its value, or an object with that field), or a JSON
    object with the fields of several; a schema may stand beside it. Where it says one of them not, or NULL,
    there is none, too.
    """
    empty = pc.and_(pc.is_null(values), pc.is_valid(keys))
    made = [_value(key, taken) for key in keys.filter(empty).to_pylist()]
    return pc.replace_with_mask(values, empty, pa.array(made, values.type)) if made else values


def marks(values: pa.Array) -> pa.Array:
    """Which of the records that came are tombstones."""
    return pc.is_null(values)


class _Number(str):
    """A number as it is written: a decimal loses nothing."""


def _value(key: bytes, taken: Fields) -> bytes | None:
    """The text of a row that has the fields of a key; None: the key does not say them."""
    try:
        text, names = key.decode(), taken.tombstones
        found = _fields(text, names) if len(names) > 1 else _field(text, names[0], taken)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if None in found.values():
        return None
    row = {name: _written(found.get(name)) for name in taken.declared.names}
    return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in row.items()) + "}").encode()


def _fields(text: str, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a key that is a JSON object."""
    found = _parsed(text)
    return {name: found[name] for name in names}


def _field(text: str, name: str, taken: Fields) -> dict[str, Any]:
    """The one field of a key: its text, or what stands there as JSON."""
    is_text = not isinstance(taken.declared[name].dataType, NumericType | BooleanType)
    try:
        found = _parsed(text) if text.startswith(('"', "{")) or not is_text else text
    except ValueError:
        found = text if is_text else None
    return {name: found[name] if isinstance(found, dict) else found}


def _parsed(text: str) -> Any:
    """What JSON says; of an object with its schema beside it, as Kafka Connect's converter writes it, that
    alone."""
    found = json.loads(text, parse_int=_Number, parse_float=_Number)
    enveloped = isinstance(found, dict) and found.keys() == {"schema", "payload"}
    return found["payload"] if enveloped else found


def _written(value: Any) -> str:
    return value if isinstance(value, _Number) else json.dumps(value)
