"""The files of tables at the versions that are read, from tables that stay open.

To open a table reads its log since the last checkpoint; one that is open follows it by what was added. Each
table is read by several flows, each batch of which asks for its newest version, or one near it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headwater.storage import delta, store
from headwater.storage.store import Entry

MOST = 256  # tables that stay open


def adds(table: Path, version: int) -> pa.Table:
    """The files of a version of a table, as `delta.adds` has them.

    Raises:
        CommitError: the table is gone, or something of its log can't be read.
    """
    return _OPEN.of(table).at(version)


class _Snapshot:
    """One table at the newest version that it was asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._table: DeltaTable | None = None
        self._entry: Entry | None = None  # the log's, of that version
        self._adds = pa.table({})

    def at(self, version: int) -> pa.Table:
        """The files of a version. An older one than the newest is opened by itself."""
        with self._lock:
            known = self._known()
            if known is not None and int(known.version()) > version:
                return delta.adds(delta.opened(self._path, version))
            if known is None or not self._follow(known, version):
                entry = _entry(self._path, version)
                self._keep(delta.opened(self._path, version), entry)
            return self._adds

    def _known(self) -> DeltaTable | None:
        """The table as it was read; None where it was not yet, or another was put in its place."""
        table = self._table
        return table if table and _entry(self._path, int(table.version())) == self._entry else None

    def _follow(self, table: DeltaTable, version: int) -> bool:
        """Bring it to a version, and say whether that could be done."""
        known = int(table.version())
        if known == version:
            return True
        entries = [_entry(self._path, at) for at in range(known + 1, version + 1)]
        if not all(entry and entry.size for entry in entries):
            return False  # `delta.opened` says what is wrong
        try:
            table.load_as_version(version)
        except DeltaError:
            return False
        self._keep(table, entries[-1])
        return True

    def _keep(self, table: DeltaTable, entry: Entry | None) -> None:
        """Keep the table, as it is read now.

        Args:
            table: the table.
            entry: that of its version, as the log had it before.
        """
        self._table, self._entry, self._adds = table, entry, delta.adds(table)


class _Open:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[Path, _Snapshot] = OrderedDict()

    def of(self, path: Path) -> _Snapshot:
        """A table's, of which the one that was asked for longest ago goes for it."""
        with self._lock:
            found = self._found.setdefault(path, _Snapshot(path))
            self._found.move_to_end(path)
            if len(self._found) > MOST:
                self._found.popitem(last=False)
        return found


def _entry(table: Path, version: int) -> Entry | None:
    """The log's entry of a version, unread; None: it is gone."""
    path = delta.entry(table, version)
    try:
        return store.of(path).entry(path)
    except FileNotFoundError:
        return None


_OPEN = _Open()  # by this process
