"""Records as the flow that reads Kafka would have taken them into a bronze table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from headwater.project.bronze import BRONZE
from headwater.storage import stored

Value = Mapping[str, Any] | str | bytes | None


@dataclass(frozen=True)
class Record:
    """One Kafka record.

    Attributes:
        value: a mapping is sent as JSON, text as UTF-8; None is a tombstone.
        key: of any of these kinds, or None.
        partition: where it stands; `offset`: None is the next one of its partition.
        timestamp: Kafka's own (UTC); None is the time of sending.
        headers: name and value of each.
    """

    value: Value
    key: Value = None
    partition: int = 0
    offset: int | None = None
    timestamp: datetime | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Sent:
    """Rows of one commit of a bronze table.

    Attributes:
        rows: with the columns of bronze.
        ends: {partition → the offset after its last record}, of all partitions.
        newest: Kafka's timestamp of the newest record, epoch milliseconds; None where there is none.
    """

    rows: pa.Table
    ends: dict[str, int] = field(default_factory=dict)
    newest: int | None = None


def bronze(
    records: Iterable[Record | Value], *, topic: str, cluster: str, now: datetime, ends: Mapping[str, int]
) -> Sent:
    """The rows of bronze that records become.

    Args:
        records: those that are no `Record` are the value of one in partition 0, without a key.
        topic: where they were.
        cluster: of the brokers.
        now: when they were sent and read (UTC).
        ends: {partition → the offset after its last record}, before them.
    """
    after, newest, rows = dict(ends), None, []
    for each in records:
        record = each if isinstance(each, Record) else Record(each)
        partition = str(record.partition)
        offset = after.get(partition, 0) if record.offset is None else record.offset
        after[partition] = max(after.get(partition, 0), offset + 1)
        at = record.timestamp or now
        newest = max(newest or 0, int(at.timestamp() * 1000))
        rows.append(
            {
                "key": _bytes(record.key),
                "value": _bytes(record.value),
                "topic": topic,
                "partition": record.partition,
                "offset": offset,
                "timestamp": at,
                "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
                "cluster": cluster,
                "ingested_at": now,
            }
        )
    return Sent(pa.Table.from_pylist(rows, stored.schema(BRONZE)), after, newest)


def _bytes(value: Value) -> bytes | None:
    if isinstance(value, Mapping):
        return json.dumps(value).encode()
    return value.encode() if isinstance(value, str) else value
