"""The proof that records are out: every Parquet file of the lake that says where its rows came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.connectors.decode import SOURCE
from headwater.errors import FlowError
from headwater.storage.erasure import NOTE
from headwater.storage.lake import Lake
from headwater.storage.places import KEYS, PLACE, within

_AT_ONCE = 500_000  # rows


@dataclass(frozen=True)
class Searched:
    """What was looked through.

    Attributes:
        files: how many files say where each of their rows stands in Kafka; none of the records is in them.
        others: how many files do not, as their rows follow from many records, or have left it out.
    """

    files: int
    others: int


def search(lake: Lake, places: pa.Table) -> Searched:
    """Look for records in every file of the lake, be it of a table or not.

    Raises:
        FlowError: one is still there, or a file can't be read.
    """
    named = others = 0
    for path in _files(lake.root):
        with _opened(path) as opened:
            columns = _columns(opened.schema_arrow)
            if not columns:
                others += 1
                continue
            named += 1
            for batch in opened.iter_batches(_AT_ONCE, columns=columns):
                left = len(within(_places(pa.Table.from_batches([batch])), places))
                if left:
                    raise FlowError(
                        f"{path} still has {left} of the records; that is a defect: nothing was announced as "
                        "erased",
                        code="RECORDS_LEFT",
                        file=path,
                        hint="headwater erase tries again",
                    )
    return Searched(named, others)


def _files(root: Path) -> Iterator[Path]:
    """All Parquet files but those of logs and of the catalog, which hold no rows of tables."""
    for path in root.rglob("*.parquet"):
        if not {"_delta_log", "_catalog", NOTE} & {*path.relative_to(root).parts}:
            yield path


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as e:
        raise FlowError(
            f"{path} is no whole Parquet file, so nobody knows what it has",
            code="FILE_DAMAGED",
            file=path,
            hint="restore it, or remove it if no table has it: headwater erase tries again",
        ) from e


def _columns(schema: pa.Schema) -> list[str]:
    """Where a file says that its rows came from; empty where it does not."""
    if {*KEYS} <= {*schema.names}:
        return KEYS
    if SOURCE in schema.names and pa.types.is_struct(schema.field(SOURCE).type):
        return [SOURCE]
    return []


def _places(rows: pa.Table) -> pa.Table:
    if SOURCE not in rows.column_names:
        return rows
    fields = rows[SOURCE].combine_chunks()
    return pa.table({name: fields.field(name).cast(kind) for name, kind in PLACE.items()})
