"""The change feed of a table whose rows change in place: what became of which row, file by file.

A commit that changed or removed rows has files of its changes; one that only added rows has none, and its new
files are its changes: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-cdc-file
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import FlowError
from headwater.storage import stored
from headwater.storage.log import Commit, DataFile
from headwater.storage.merging import KIND
from headwater.storage.target import GONE

_BEFORE = "update_preimage"
SIGN = "_sign"  # of a row: 1 where it comes, -1 where it goes
PIECE = 50_000  # rows


def files(commit: Commit, table: Path) -> tuple[DataFile, ...]:
    """The files that say what a commit changed.

    Raises:
        FlowError: it took rows away, and keeps no record of which.
    """
    if commit.removed and not commit.changes:
        raise FlowError(
            f"version {commit.version} ({commit.operation}) of {table} took rows away and kept no record of "
            "which",
            code="ROWS_TAKEN_AWAY",
            file=table,
            hint="rebuild what reads it",
        )
    return commit.changes or commit.added


def read(file: str, columns: pa.Schema) -> pa.Table:
    """The rows of one such file as they are since then, and in the column `GONE` whether they are no more.

    Args:
        file: its path.
        columns: of the table; what the file lacks is NULL.
    """
    return _since(stored.whole(file), columns)


def rows(file: DataFile) -> int:
    """How many rows such a file has: each that was changed as it was and as it is."""
    return file.rows if file.rows >= 0 else int(pq.read_metadata(file.path).num_rows)


def signed(file: str, columns: pa.Schema) -> pa.Table:
    """The rows of one such file that come and that go, with a `SIGN`: one that was changed is both."""
    found = stored.whole(file)
    rows = stored.fitted(found, columns)
    if KIND not in found.column_names:
        return rows.append_column(SIGN, pa.repeat(1, len(rows)))
    goes = pc.is_in(found[KIND].cast(pa.string()), pa.array(["delete", _BEFORE]))
    return rows.append_column(SIGN, pc.if_else(goes, -1, 1))


def both(came: pa.Table, went: pa.Table) -> pa.Table:
    """Rows that come and rows that go, with a `SIGN`."""
    signs = ((came, 1), (went, -1))
    return pa.concat_tables([rows.append_column(SIGN, pa.repeat(sign, len(rows))) for rows, sign in signs])


def pieces(file: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in the same order, some at a time."""
    with stored.opened(file) as found:
        for batch in found.iter_batches(PIECE):
            yield _since(pa.Table.from_batches([batch]), columns)


def count(file: str) -> int:
    """How many rows those are."""
    kinds = [name for name in pq.read_schema(file).names if name == KIND]
    if not kinds:
        return int(pq.read_metadata(file).num_rows)
    with stored.opened(file) as found:
        parts = found.iter_batches(PIECE, columns=kinds)
        return sum(pc.sum(pc.not_equal(part[KIND].cast(pa.string()), _BEFORE)).as_py() or 0 for part in parts)


def _since(found: pa.Table, columns: pa.Schema) -> pa.Table:
    rows = stored.fitted(found, columns)
    if KIND not in found.column_names:
        return rows.append_column(GONE, pa.repeat(False, len(rows)))
    kinds = found[KIND].cast(pa.string())
    marked = rows.append_column(GONE, pc.equal(kinds, "delete"))
    return marked.filter(pc.not_equal(kinds, _BEFORE))
