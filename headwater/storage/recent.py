"""Rows of small Parquet files, kept in memory once they were read: what a file holds never changes.

A batch of few rows reads again what the batches before it have read or written: each table by several flows,
each of its files until they are put together. To open such a file takes longer than all that is done with it.
A file is known by its path, size and time, so one that another has replaced is read anew.

They are kept as Arrow writes a stream of them, and who asks has columns that lie in it: the objects of a few
rows' columns, and the ends of their buffers, take more room than the rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.storage import store
from headwater.storage.store import Entry

SMALL = 1 << 18  # bytes of a file that is kept when it is read
WRITTEN = 1 << 22  # of one that is when it is written: the next batch reads it
ONE_BY_ONE = 64  # such files that are read so; more of them are read together, and not kept
_LARGE = 1 << 24  # bytes of its rows in memory, with which it is not
MOST = 1 << 27  # bytes of the rows of all


@dataclass(frozen=True)
class _Kept:
    path: Path
    entry: Entry
    stream: bytes


class Recent:
    """The rows of files that were read last.

    Args:
        most: how many bytes they may take.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self._size = most, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def find(self, file: str) -> pa.Table | None:
        """The rows of a file; None: they are not kept."""
        with self._lock:
            kept = self._kept.get(file)
            if kept is None:
                return None
            self._kept.move_to_end(file)
        if _entry(kept.path) == kept.entry:
            return _of(kept.stream)
        self.forget([file])
        return None

    def rows(self, file: str, read: Callable[[str], pa.Table]) -> pa.Table:
        """The rows of a file, which is read where they are not kept; then they are, if they are few."""
        found = self.find(file)
        if found is not None:
            return found
        entry, rows = _entry(Path(file)), read(file)
        if entry is not None:
            self._keep(file, entry, rows, SMALL)
        return rows

    def keep(self, file: str, rows: pa.Table) -> None:
        """Keep the rows of a file that was just written, if they are few: as who reads it finds them."""
        if (entry := _entry(Path(file))) is not None:
            self._keep(file, entry, rows, WRITTEN)

    def forget(self, files: Iterable[str]) -> None:
        """Keep the rows of files no more, as others hold them now."""
        with self._lock:
            for file in files:
                if (gone := self._kept.pop(file, None)) is not None:
                    self._size -= len(gone.stream)

    def _keep(self, file: str, entry: Entry, rows: pa.Table, most: int) -> None:
        if entry.size > most or rows.nbytes > min(_LARGE, self._most):
            return
        kept = _Kept(Path(file), entry, _stream(rows))
        with self._lock:
            before = self._kept.pop(file, None)
            self._size += len(kept.stream) - (len(before.stream) if before else 0)
            self._kept[file] = kept
            while self._size > self._most:
                _, gone = self._kept.popitem(last=False)
                self._size -= len(gone.stream)


def _stream(rows: pa.Table) -> bytes:
    """Rows as Arrow's streams have them: https://arrow.apache.org/docs/format/Columnar.html"""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(written.getvalue())


def _of(stream: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(stream)) as found:
        return found.read_all()


def is_small(file: str) -> bool:
    """Whether a file is one whose rows are kept."""
    entry = _entry(Path(file))
    return entry is not None and entry.size <= SMALL


def _entry(path: Path) -> Entry | None:
    try:
        return store.of(path).entry(path)
    except FileNotFoundError:
        return None


KEPT = Recent()  # this process's
