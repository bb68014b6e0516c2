"""Records without a value, as the rows that they delete: the fields of the key, all others NULL.

In a topic that Kafka compacts such a record deletes what went before with the same key:
https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType

from headwater.connectors.decode.contract import Fields


def filled(values: pa.Array, keys: pa.Array, taken: Fields) -> pa.Array:
    """The values, with one made of its key for each tombstone; of one without a key there is none.

    A key is the text of the one column, perhaps as JSON (a string, or an object with that field), or a JSON
    object with the fields of several; where it is neither, there is none, too.
    """
    empty = pc.and_(pc.is_null(values), pc.is_valid(keys))
    made = [_value(key, taken) for key in keys.filter(empty).to_pylist()]
    return pc.replace_with_mask(values, empty, pa.array(made, values.type)) if made else values


def marks(values: pa.Array) -> pa.Array:
    """Which of the records that came are tombstones."""
    return pc.is_null(values)


def _value(key: bytes, taken: Fields) -> bytes | None:
    try:
        text = key.decode()
        nothing: dict[str, Any] = dict.fromkeys(taken.declared.names)
        if len(taken.tombstones) > 1:
            found = json.loads(text)
            return json.dumps({**nothing, **{name: found[name] for name in taken.tombstones}}).encode()
        (name,) = taken.tombstones
        of_text = isinstance(taken.declared[name].dataType, StringType)
        found = _of_text(text, name) if of_text else json.loads(text)
        return json.dumps({**nothing, name: found}).encode()
    except (ValueError, TypeError, KeyError):
        return None


def _of_text(text: str, name: str) -> str:
    """A text that is a key as it is, or stands in JSON."""
    try:
        found = json.loads(text) if text.startswith(('"', "{")) else text
    except ValueError:
        return text
    value = found.get(name) if isinstance(found, dict) else found
    return value if isinstance(value, str) else text
