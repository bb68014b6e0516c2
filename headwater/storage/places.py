"""Rows in memory, told apart by where they stand in Kafka: the columns of `PLACE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

PLACE = {"cluster": pa.string(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
KEYS = list(PLACE)
_SCHEMA = pa.schema(list(PLACE.items()))


def once(rows: pa.Table) -> pa.Table:
    """The rows, one of each place in Kafka."""
    numbered = rows.select(KEYS).append_column("at", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(KEYS).aggregate([("at", "min")])["at_min"]
    return rows if len(first) == len(rows) else rows.take(first.sort())


def without(rows: pa.Table, places: pa.Table) -> pa.Table:
    """The rows that stand at none of these places in Kafka, in their order."""
    return _joined(rows, places, "left anti")


def within(rows: pa.Table, places: pa.Table) -> pa.Table:
    """The rows that stand at one of these places in Kafka, in their order."""
    return _joined(rows, places, "left semi")


def place_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a row stands in Kafka: (cluster, topic, partition, offset)."""
    return tuple(row[name] for name in KEYS)


def _joined(rows: pa.Table, places: pa.Table, how: str) -> pa.Table:
    if not len(rows):
        return rows
    numbered = rows.select(KEYS).append_column("at", pa.array(range(len(rows)), pa.int64()))
    found = numbered.cast(_SCHEMA.append(pa.field("at", pa.int64()))).join(
        places.select(KEYS).cast(_SCHEMA), KEYS, join_type=how
    )
    return rows.take(found["at"].combine_chunks().sort())
