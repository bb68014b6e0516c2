"""Which rows of a table have keys that a batch has: found by an index in memory, not by reading the table.

The index holds for each row a hash of its keys and the number of the file that the row is in, together 8
bytes, in runs that are in order: new ones are merged into those that are no longer, as log-structured
merge-trees do it. It follows the table's files: those that are new are read when it is asked, all of them the
first time, and those that are gone it forgets. So after a compaction only the files that it wrote are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
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

# The bits of an entry that are its file's number; the others are of its hash.
_FILES = np.uint64((1 << 24) - 1)
_TOGETHER = 1 << 27  # bytes of new files that are read at once
_LONGEST = 1 << 24  # entries of a run that others are merged into: to merge takes its memory again


class KeyIndex:
    """An index of a table's rows by some columns.

    Args:
        keys: the columns.
        columns: all of the table's.
    """

    def __init__(self, keys: Sequence[str], columns: pa.Schema) -> None:
        self._hash = f"hash({', '.join(map(quoted, keys))})"
        self._columns = columns
        self._files: dict[str, int] = {}  # path → its number
        self._next = 0  # number
        self._runs: list[NDArray[np.uint64]] = []

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
        """Those of the batch's keys."""
        rows = Scan("batch")
        if isinstance(batch, pa.Table):
            connection.register("batch", batch)
        else:
            rows = scan(connection, self._columns, batch)
        of_rows = f"SELECT DISTINCT {self._hash} AS h FROM {rows.sql}"
        found = connection.execute(of_rows, dict(rows.parameters)).fetchnumpy()
        return np.asarray(found["h"], np.uint64)

    def _owners(
        self, connection: duckdb.DuckDBPyConnection, files: Sequence[str], hashes: NDArray[np.uint64]
    ) -> tuple[list[str], int]:
        self._follow(connection, files)
        wanted = np.unique(hashes & ~_FILES)
        found = [_entries(run, wanted) & _FILES for run in self._runs]
        owners = {number for each in found for number in np.unique(each).tolist()}
        return [file for file, number in self._files.items() if number in owners], sum(map(len, found))

    def _follow(self, connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
        """Take in the files that are new, and forget those that are gone."""
        have, known = set(files), self._files
        if self._next + len(have) > _FILES:
            self._files, self._next, self._runs = {}, 0, []
        elif gone := [number for file, number in known.items() if file not in have]:
            self._files = {file: number for file, number in known.items() if file in have}
            left = (run[~np.isin(run & _FILES, np.array(gone, np.uint64))] for run in self._runs)
            self._runs = [run for run in left if len(run)]
        for some in _parts([file for file in files if file not in self._files]):
            self._take(connection, some)

    def _take(self, connection: duckdb.DuckDBPyConnection, new: Sequence[str]) -> None:
        """Take in files that are new."""
        numbers = pa.array(range(self._next, self._next + len(new)), pa.uint64())
        connection.register("names", pa.table({"name": new, "number": numbers}))
        rows = scan(connection, self._columns, new, place=True)
        found: dict[str, Any] = connection.execute(
            f"SELECT h, number FROM (SELECT {self._hash} AS h, {FILE} AS file FROM {rows.sql}) "
            "JOIN names ON name = file",
            dict(rows.parameters),
        ).fetchnumpy()
        self._files |= dict(zip(new, numbers.to_pylist(), strict=True))
        self._next += len(new)
        hashes, files = (np.asarray(found[each], np.uint64) for each in ("h", "number"))
        self._runs.append(np.sort(hashes & ~_FILES | files))
        while len(self._runs) > 1 and len(self._runs[-2]) < min(2 * len(self._runs[-1]), _LONGEST):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]))]


def _entries(run: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The entries of a run with one of these hashes."""
    begin = np.searchsorted(run, hashes, "left")
    counts = np.searchsorted(run, hashes | _FILES, "right") - begin
    first = np.cumsum(counts) - counts  # of each hash among all that are found
    found: NDArray[np.uint64] = run[np.repeat(begin - first, counts) + np.arange(counts.sum())]
    return found


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
