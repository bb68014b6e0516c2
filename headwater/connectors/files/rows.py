"""Records of a file as rows of a bronze table."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa

from headwater.common import times
from headwater.connectors.files.file import File
from headwater.project.bronze import BRONZE
from headwater.storage import stored
from headwater.storage.names import FILES_CLUSTER

COLUMNS = stored.schema(BRONZE)


def rows(
    values: pa.ChunkedArray, file: File, *, topic: str, partition: int, first: int, clock: datetime
) -> pa.Table:
    """The columns of a bronze table.

    Args:
        values: the records.
        file: where they are from. Its path, when it was written last (UTC) and its size in bytes are the
            headers `file.path`, `file.modified` and `file.size`.
        topic, partition: what stands in these columns.
        first: the offset of the first record; the others follow it.
        clock: the batch's time (UTC), which is their `ingested_at`.
    """
    count, modified = len(values), written(file)
    said = {
        "file.path": file.path,
        "file.modified": modified.isoformat().replace("+00:00", "Z"),
        "file.size": str(file.size),
    }
    headers = [{"key": key, "value": text.encode()} for key, text in said.items()]
    same = {
        "key": None,
        "topic": topic,
        "partition": partition,
        "timestamp": modified,
        "headers": headers,
        "cluster": FILES_CLUSTER,
        "ingested_at": clock,
    }
    found = {name: _repeated(value, COLUMNS.field(name).type, count) for name, value in same.items()} | {
        "value": values,
        "offset": pa.array(range(first, first + count), pa.int64()),
    }
    return pa.table([found[name] for name in COLUMNS.names], schema=COLUMNS)


def written(file: File) -> datetime:
    """When a file was written last (UTC)."""
    return times.EPOCH + timedelta(microseconds=file.modified)


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([value], kind).take(pa.nulls(count, pa.int64()).fill_null(0))
