"""Taking records out of a bronze table: its files written anew without them, and its past forgotten."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headwater import failpoints
from headwater.maintain.clean import clean, forget_uncommitted
from headwater.storage import log, stored
from headwater.storage.places import KEYS, within, without
from headwater.storage.target import Target

_AT_ONCE = 100_000  # rows in memory


def take_out(target: Target, places: pa.Table) -> int:
    """Write those files anew that have records at these places; how many files that were.

    The other records stay where they are, in their order, so flows that go on from here miss none.

    Raises:
        CommitError: something else writes the table.
    """
    written = 0
    for file in log.snapshot(target.place.path, target.version):
        if not len(within(pq.read_table(file.path, columns=KEYS, partitioning=None), places)):
            continue
        left = _written(target, file.path, places)
        failpoints.reach("written", "erase")
        target.rewrite([file.path], left, file.order, operation="DELETE")
        written += 1
    return written


def forget_past(target: Target) -> None:
    """Remove what only older versions have; readers begin with a snapshot of the newest."""
    table, head = target.place.path, target.version
    DeltaTable(table).create_checkpoint()
    clean(table, upto=head, before=datetime.now(UTC) + timedelta(seconds=1))
    for path in log.read(table, head).left:
        Path(path).unlink(missing_ok=True)
    forget_uncommitted(table, [], older=timedelta(0))
    for folder in (path for path in table.iterdir() if path.is_dir() and not any(path.iterdir())):
        folder.rmdir()


def _written(target: Target, file: str, places: pa.Table) -> list[str]:
    """The paths below the table of what was written without the records; none where no other is left."""
    folder = f"erased-{uuid.uuid4().hex}"
    path = target.place.path / folder / "part-00000.parquet"
    path.parent.mkdir()
    columns, rows = pa.schema(DeltaTable(target.place.path).schema().to_arrow()), 0
    with pq.ParquetWriter(path, columns, compression="zstd", store_schema=False) as writer:
        for left in _left(file, columns, places):
            writer.write_table(left)
            rows += len(left)
    if rows:
        return [f"{folder}/{path.name}"]
    shutil.rmtree(path.parent)
    return []


def _left(file: str, columns: pa.Schema, places: pa.Table) -> Iterator[pa.Table]:
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(_AT_ONCE):
            yield without(stored.fitted(pa.Table.from_batches([batch]), columns), places)
