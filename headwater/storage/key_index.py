"""Which rows of a table have keys that a batch has: found by an index in memory, not by reading the table.

The index holds a hash of each row's keys and the file that the row is in, 12 bytes a row, in runs that are in
order: new ones are merged into those that are no longer, as log-structured merge-trees do it. It follows the
table's files: those that are new are read when it is asked, all of them the first time, and those that are
gone it forgets. So after a compaction only the files that it wrote are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.common import database, scratch
from headwater.common.scratch import quoted
from headwater.storage import store
from headwater.storage.scan import FILE, Scan, scan

Batch: TypeAlias = pa.Table | Sequence[str]  # rows, or the files that hold them

_TOGETHER = 1 << 27  # bytes of new files that are read at once
_LONGEST = 1 << 23  # hashes of a run that others are merged into: to merge takes twice its memory


@dataclass(frozen=True)
class _Run:
    """Hashes in order, and the number of the file that each is in."""

    hashes: NDArray[np.uint64]
    files: NDArray[np.int32]

    def files_with(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The file of each row with one of these hashes, which are in order."""
        begin = np.searchsorted(self.hashes, hashes, "left")
        counts = np.searchsorted(self.hashes, hashes, "right") - begin
        first = np.cumsum(counts) - counts  # of each hash among all that are found
        found: NDArray[np.int32] = self.files[np.repeat(begin - first, counts) + np.arange(counts.sum())]
        return found

    def without(self, kept: NDArray[np.bool_]) -> _Run:
        """Those whose files are kept, by their numbers among these."""
        stay, numbers = kept[self.files], np.cumsum(kept, dtype=np.int32) - 1
        return _Run(self.hashes[stay], numbers[self.files[stay]])

    def with_all(self, other: _Run) -> _Run:
        return _sorted(np.concatenate([self.hashes, other.hashes]), np.concatenate([self.files, other.files]))


class KeyIndex:
    """An index of a table's rows by some columns.

    Args:
        keys: the columns.
        columns: all of the table's.
    """

    def __init__(self, keys: Sequence[str], columns: pa.Schema) -> None:
        self._hash = f"hash({', '.join(map(quoted, keys))})"
        self._columns = columns
        self._files: list[str] = []
        self._runs: list[_Run] = []

    def owners(self, files: Sequence[str], batch: Batch) -> tuple[list[str], int]:
        """Those of the table's `files` that may have rows with keys of `batch`, and how many rows."""
        with self._connection() as connection:
            return self._owners(connection, files, self._hashes(connection, batch))

    def rows(self, files: Sequence[str], batch: Batch) -> pa.Table:
        """The rows in the table's `files` whose keys may be those of a row of `batch`.

        Two keys may have one hash: compare the keys of what is found.
        """
        with self._connection() as connection:
            hashes = self._hashes(connection, batch)
            owners, _ = self._owners(connection, files, hashes)
            if not owners:
                return self._columns.empty_table()
            connection.register("wanted", pa.table({"h": hashes}))
            names = ", ".join(map(quoted, self._columns.names))
            held = scan(connection, self._columns, owners)
            rows = database.table(
                connection,
                f"SELECT {names} FROM {held.sql} WHERE {self._hash} IN (SELECT h FROM wanted)",
                held.parameters,
            )
        return rows.cast(self._columns)

    def _connection(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """One to compute in; where no file of the table was read yet, all of them are."""
        return scratch.connection(0 if self._files else scratch.MANY)

    def _hashes(self, connection: duckdb.DuckDBPyConnection, batch: Batch) -> NDArray[np.uint64]:
        """Those of the batch's keys, in order."""
        rows = Scan("batch")
        if isinstance(batch, pa.Table):
            connection.register("batch", batch)
        else:
            rows = scan(connection, self._columns, batch)
        of_rows = f"SELECT DISTINCT {self._hash} AS h FROM {rows.sql}"
        found = connection.execute(of_rows, dict(rows.parameters)).fetchnumpy()
        return np.sort(np.asarray(found["h"], np.uint64))

    def _owners(
        self, connection: duckdb.DuckDBPyConnection, files: Sequence[str], hashes: NDArray[np.uint64]
    ) -> tuple[list[str], int]:
        self._follow(connection, files)
        found = [file for run in self._runs for file in run.files_with(hashes).tolist()]
        return [self._files[at] for at in sorted(set(found))], len(found)

    def _follow(self, connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
        """Take in the files that are new, and forget those that are gone."""
        have = set(files)
        kept = np.array([file in have for file in self._files], np.bool_)
        if not kept.all():
            self._files = [file for file in self._files if file in have]
            self._runs = [left for run in self._runs if len((left := run.without(kept)).hashes)]
        known = set(self._files)
        new = [file for file in files if file not in known]
        if not new:
            return
        for some in _parts(new):
            self._take(connection, some)

    def _take(self, connection: duckdb.DuckDBPyConnection, new: Sequence[str]) -> None:
        """Take in files that are new."""
        numbers = pa.array(range(len(self._files), len(self._files) + len(new)), pa.int32())
        connection.register("names", pa.table({"name": new, "number": numbers}))
        rows = scan(connection, self._columns, new, place=True)
        found: dict[str, Any] = connection.execute(
            f"SELECT {self._hash} AS h, number FROM {rows.sql} JOIN names ON names.name = {FILE}",
            dict(rows.parameters),
        ).fetchnumpy()
        self._files += new
        self._runs.append(_sorted(np.asarray(found["h"], np.uint64), np.asarray(found["number"], np.int32)))
        while len(self._runs) > 1 and self._are_alike(*self._runs[-2:]):
            self._runs[-2:] = [self._runs[-2].with_all(self._runs[-1])]

    def _are_alike(self, run: _Run, last: _Run) -> bool:
        """Whether the last of the runs is to be merged into the one before it."""
        return len(run.hashes) < min(2 * len(last.hashes), _LONGEST)


def _parts(files: Sequence[str]) -> Iterator[list[str]]:
    """Files that are read at once."""
    part, size = list[str](), 0
    for file in files:
        part.append(file)
        size += store.of(Path(file)).entry(Path(file)).size
        if size >= _TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


def _sorted(hashes: NDArray[np.uint64], files: NDArray[np.int32]) -> _Run:
    order = np.argsort(hashes, kind="stable")
    return _Run(hashes[order], files[order])
