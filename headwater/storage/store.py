"""What a lake lies on: where the engine's own small files are put, got, listed, removed and locked.

Log entries that the engine writes itself, intents, notes, requests and leases go through a `Store`, and so
does what removes files. Rows do not: Arrow, Spark and DuckDB write and read Parquet at its path, and delta-rs
reads logs, commits rows and writes checkpoints. Where one of these writes, `Store.by_others` says so.

There is one store, of files on this machine (`Files`). What another medium does otherwise is behind methods:
how a name is taken by one alone (`put_new`), what is replaced whole (`put`), what keeps processes apart
(`lock`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headwater.common import locks, times

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A file, unread: its bytes, and when it was written (seconds since the epoch)."""

    size: int
    modified: float


class Lock(ABC):
    """A lock of one process on a path, free when it is released or the process ends, in whatever way."""

    @abstractmethod
    def take(self, within: float = 0.0, *, shared: bool = False) -> bool:
        """Take it, waiting for it for so many seconds; whether that worked. `shared`: with others who do."""

    @abstractmethod
    def note(self, content: bytes) -> None:
        """Have its file say who holds it; of that no more is sure than of any file that is being written."""

    @abstractmethod
    def release(self) -> None:
        """Give it back."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Store(ABC):
    """Files by their paths; each method but `delete_all` is one step: a kill leaves it done or not done."""

    @abstractmethod
    def get(self, path: Path) -> bytes:
        """What a file holds.

        Raises:
            FileNotFoundError: it is not there.
        """

    @abstractmethod
    def entry(self, path: Path) -> Entry:
        """A file's size and age.

        Raises:
            FileNotFoundError: it is not there.
        """

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether there is a file, or a folder."""

    @abstractmethod
    def put(self, path: Path, content: bytes) -> None:
        """Put a file in place of what is there, if anything is; its folder must be there.

        One process at a time puts a file.
        """

    @abstractmethod
    def put_new(self, path: Path, content: bytes) -> None:
        """Put a file where there is none; of several who try it, one succeeds.

        Raises:
            FileExistsError: there is one.
        """

    @abstractmethod
    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none where there is no folder."""

    @abstractmethod
    def find(self, folder: Path, pattern: str) -> list[Path]:
        """What is below a folder by a pattern as `Path.glob` takes it, in no order."""

    @abstractmethod
    def below(self, folder: Path, suffix: str) -> list[Path]:
        """The files below a folder, however deep, whose names end so; others may remove some meanwhile."""

    @abstractmethod
    def delete(self, path: Path) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def delete_all(self, folder: Path) -> None:
        """Remove a folder with what is in it, if it is there; a kill leaves some of it."""

    @abstractmethod
    def rename(self, path: Path, to: Path) -> None:
        """Give a file or a folder another name.

        Raises:
            FileNotFoundError: it is not there.
        """

    @abstractmethod
    def make(self, folder: Path) -> None:
        """Make a folder, and those above it."""

    @abstractmethod
    def drop_empty(self, folder: Path) -> None:
        """Remove a folder, if it is empty."""

    @abstractmethod
    def lock(self, path: Path) -> Lock:
        """A lock on a path, not taken yet; its file is made, with the folders above it."""

    @abstractmethod
    def is_locked(self, path: Path) -> bool:
        """Whether somebody has taken the lock on a path; to look needs the right to read its file alone."""

    def by_others(self, path: Path, write: Callable[[], T]) -> T:
        """Let another library write at a path by itself: delta-rs a table, Arrow and Spark files below it."""
        return write()


class Files(Store):
    """Files of a file system of this machine."""

    def get(self, path: Path) -> bytes:
        return path.read_bytes()

    def entry(self, path: Path) -> Entry:
        found = os.stat(path)
        return Entry(found.st_size, found.st_mtime)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def put(self, path: Path, content: bytes) -> None:
        half = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")  # several may put it at once
        try:
            half.write_bytes(content)
            os.replace(half, path)
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def put_new(self, path: Path, content: bytes) -> None:
        half = path.with_suffix(f".{uuid.uuid4().hex}.part")
        try:
            half.write_bytes(content)
            os.link(half, path)  # as a rename, but never over another
        finally:
            half.unlink(missing_ok=True)

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []

    def find(self, folder: Path, pattern: str) -> list[Path]:
        return list(folder.glob(pattern))

    def below(self, folder: Path, suffix: str) -> list[Path]:
        found = ((at, name) for at, _, names in os.walk(folder) for name in names)
        return [Path(at, name) for at, name in found if name.endswith(suffix)]

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def delete_all(self, folder: Path) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def rename(self, path: Path, to: Path) -> None:
        os.replace(path, to)

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def drop_empty(self, folder: Path) -> None:
        with suppress(OSError):
            folder.rmdir()

    def lock(self, path: Path) -> Lock:
        return _Flock(path)

    def is_locked(self, path: Path) -> bool:
        with suppress(FileNotFoundError), locks.opened(path, os.O_RDONLY) as file:
            return not locks.locked(file, shared=True)  # two that look are in nobody's way
        return False


class _Flock(Lock):
    """A lock of the operating system: the kernel frees it when its holder ends."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, self._opened(path)

    def take(self, within: float = 0.0, *, shared: bool = False) -> bool:
        deadline = times.clock.monotonic() + within
        while locks.locked(self._file, max(0.0, deadline - times.clock.monotonic()), shared=shared):
            if self._is_there():
                return True
            os.close(self._file)  # it was removed meanwhile: the next one would lock another
            self._file = self._opened(self._path)
        return False

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    @staticmethod
    def _opened(path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def note(self, content: bytes) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, content, 0)

    def release(self) -> None:
        os.close(self._file)


_store: Store = Files()


def of(path: Path) -> Store:
    """The store that a path lies in."""
    return _store


def use(store: Store) -> Store:
    """Have all paths lie in another store, for a simulation; the one before."""
    global _store
    before, _store = _store, store
    return before
