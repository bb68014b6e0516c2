"""A merge in memory: what files hold once some of their rows are others, or gone, and what became of which.

delta-rs plans, reads and writes for each merge as if the table were large, which takes it 50 ms and more.
Where the files that may hold the keys are small, this process has their rows at hand (`headwater.storage.
recent`), and a merge is to look the keys up, and to write one file and one of the change feed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.storage import stored

MOST = 1 << 22  # bytes of the files, and of one
KIND = "_change_type"  # the column of the change feed that says what became of a row
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True)
class Merged:
    """What a merge comes to.

    Attributes:
        files: those in which rows change, by their absolute paths: they go.
        parts: what is in their place, the new rows among them: a file of each.
        changes: the rows that have changed, as the change feed has them, with their `_change_type`.
        metrics: how many rows came, changed, went and were copied, by the names that delta-rs has for them.
    """

    files: list[str]
    parts: list[pa.Table]
    changes: pa.Table
    metrics: dict[str, int]


def is_small(files: Mapping[str, int]) -> bool:
    """Whether files ({path → bytes}) are small enough, all of them."""
    return sum(files.values()) <= MOST


def tells_apart(columns: pa.Schema, keys: Sequence[str]) -> bool:
    """Whether a merge here finds by these keys what delta-rs finds: the same values, and no others."""
    return all(stored.is_told_apart(columns.field(key).type) for key in keys)


def merged(
    files: Sequence[str],
    columns: pa.Schema,
    rows: pa.Table,
    gone: pa.ChunkedArray,
    keys: Sequence[str],
    apart: int | None = None,
) -> Merged:
    """Change rows of files by their keys.

    Args:
        files: all that may hold one of the keys.
        columns: the table's.
        rows: as they are to be, by these columns; of one that goes the keys matter alone.
        gone: of each whether it goes.
        keys: what tells rows apart.
        apart: a file that has so many rows stays one; None, and of others: they become one.

    Raises:
        DamageError: a file is not what was written.
    """
    held = [stored.read(file, columns) for file in files]
    known = pa.concat_tables([columns.empty_table(), *held])
    ours, theirs = _pairs(known, rows, keys)
    goes = gone.to_numpy(zero_copy_only=False).astype(bool)
    starts = np.cumsum([0, *map(len, held)])
    of = np.searchsorted(starts, ours, side="right") - 1  # the file of each row that changes
    at = np.unique(of).tolist()
    stays = np.ones(len(known), bool)
    stays[ours] = False
    kept = {one: held[one].filter(pa.array(stays[starts[one] : starts[one + 1]])) for one in at}
    become = {one: rows.take(theirs[~goes[theirs] & (of == one)]) for one in at}
    is_new = ~goes
    is_new[theirs] = False
    new = rows.filter(pa.array(is_new))
    alone = [one for one in at if apart is not None and len(held[one]) >= apart]
    together = [some[one] for one in at if one not in alone for some in (kept, become)]
    parts = [pa.concat_tables([kept[one], become[one]]) for one in alone]
    parts.append(pa.concat_tables([columns.empty_table(), *together, new]))
    changes = {
        "update_preimage": known.take(ours[~goes[theirs]]),
        "update_postimage": rows.take(theirs[~goes[theirs]]),
        "delete": known.take(ours[goes[theirs]]),
        "insert": new,
    }
    metrics = {
        "num_source_rows": len(rows),
        "num_target_rows_inserted": len(new),
        "num_target_rows_updated": len(changes["update_postimage"]),
        "num_target_rows_deleted": len(changes["delete"]),
        "num_target_rows_copied": sum(map(len, kept.values())),
        "num_target_files_scanned": len(files),
        "num_target_files_removed": len(at),
    }
    told = [some.append_column(KIND, pa.repeat(kind, len(some))) for kind, some in changes.items()]
    return Merged(
        [files[one] for one in at],
        [part for part in parts if len(part)],
        pa.concat_tables(told),
        metrics,
    )


def _pairs(known: pa.Table, rows: pa.Table, keys: Sequence[str]) -> tuple[Numbers, Numbers]:
    """The numbers of the rows of two tables that have the same keys, which no two of the second share."""
    of_known, of_rows = np.zeros(len(known), np.int64), np.zeros(len(rows), np.int64)
    for key in keys if len(rows) else ():
        values = pc.unique(rows[key])
        ours, theirs = (
            pc.index_in(each, value_set=values).fill_null(-1).to_numpy().astype(np.int64)
            for each in (known[key], rows[key])
        )
        is_there = (of_known >= 0) & (ours >= 0)
        of_known = np.where(is_there, of_known * len(values) + ours, -1)
        codes, of_rows = np.unique(of_rows * len(values) + theirs, return_inverse=True)
        at = np.minimum(np.searchsorted(codes, of_known), len(codes) - 1)
        of_known = np.where(codes[at] == of_known, at, -1)
    found = np.flatnonzero(of_known >= 0) if len(rows) else np.zeros(0, np.int64)
    return found, np.argsort(of_rows)[of_known[found]]
