"""The files of tables at the versions that are read: each is opened once, and followed by its commits.

Each table is read by several flows, each batch of which asks for its newest version, or one near it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from headwater.errors import CommitError
from headwater.storage import delta, listing, store
from headwater.storage.store import Entry

MOST = 256  # tables that are followed
BEFORE = 3  # versions before the newest one that are known, too: a flow reads on while others commit


def adds(table: Path, version: int) -> pa.Table:
    """The files of a version of a table; see `listing.columns`.

    Raises:
        CommitError: the table is gone, or something of its log can't be read.
    """
    return _OPEN.of(table).at(version)


class _Snapshot:
    """One table at the newest version that it was asked for, and some before it."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._newest = -1
        self._entry: Entry | None = None  # the log's, of that version
        self._files: dict[int, pa.Table] = {}  # by version

    def at(self, version: int) -> pa.Table:
        """The files of a version. One long before the newest is opened by itself."""
        with self._lock:
            if not self._files or _entry(self._path, self._newest) != self._entry:  # or another in its place
                self._open(version)
            elif version > self._newest:
                self._follow(version)
            if version not in self._files:
                return listing.of(delta.opened(self._path, version))
            return self._files[version]

    def _open(self, version: int) -> None:
        self._files = {}
        entry = _entry(self._path, version)
        self._keep(version, entry, listing.of(delta.opened(self._path, version)))

    def _follow(self, upto: int) -> None:
        """Go on to a version by what was committed since."""
        for version in range(self._newest + 1, upto + 1):
            entry = _entry(self._path, version)
            try:
                actions = delta.actions(self._path, version)
            except CommitError:  # delta-rs may have a checkpoint that says the same, and tells damage
                return self._open(upto)
            files = listing.after(self._files[self._newest], actions)
            if files is None:
                return self._open(upto)
            self._keep(version, entry, files)
        return None

    def _keep(self, version: int, entry: Entry | None, files: pa.Table) -> None:
        """Keep the files of the newest version.

        Args:
            version: which one it is.
            entry: that of its commit, as the log had it before it was read.
            files: its files.
        """
        self._newest, self._entry = version, entry
        self._files[version] = files
        self._files.pop(version - BEFORE - 1, None)


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
