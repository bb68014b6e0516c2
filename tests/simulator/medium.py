"""The store of a simulation: files on this machine, each step of which may be cut off, repeated or late."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from headwater.storage.store import Entry, Files, Lock

from .world import Fault, Process, World

T = TypeVar("T")
_REAL = re.compile(
    rb'"(timestamp|modificationTime|deletionTimestamp)":(1[7-9]\d{11})'
)  # from 2023 on: not the world's
_NOT_TOLD = "the answer was lost"


class Medium(Files):
    """The files of a world's lake.

    Args:
        world: whose processes use it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.holders: dict[Path, Process] = {}
        self._began = time.time()
        world.advanced = self._grow_older

    def get(self, path: Path) -> bytes:
        self._look("get", path)
        return super().get(path)

    def entry(self, path: Path) -> Entry:
        self._look("entry", path)
        found = super().entry(path)
        return Entry(found.size, self.world.now().timestamp() - (time.time() - found.modified))

    def exists(self, path: Path) -> bool:
        self._look("exists", path)
        return super().exists(path)

    def names(self, folder: Path) -> list[str]:
        self._look("names", folder)
        return self._shuffled(super().names(folder))

    def find(self, folder: Path, pattern: str) -> list[Path]:
        self._look("find", folder)
        return self._shuffled(super().find(folder, pattern))

    def below(self, folder: Path, suffix: str) -> list[Path]:
        self._look("below", folder)
        return self._shuffled(super().below(folder, suffix))

    def put(self, path: Path, content: bytes) -> None:
        half = path.with_name(f"{path.name}.part")
        self._do(
            "put", path, lambda: Files.put(self, path, content), lambda: _torn(half, content), twice=True
        )

    def put_new(self, path: Path, content: bytes) -> None:
        half = path.with_suffix(".left.part")
        self._do("put new", path, lambda: Files.put_new(self, path, content), lambda: _torn(half, content))

    def delete(self, path: Path) -> None:
        self._do("delete", path, lambda: Files.delete(self, path), twice=True)

    def delete_all(self, folder: Path) -> None:
        def half() -> None:
            for file in sorted(Files.below(self, folder, ""))[::2]:
                file.unlink()

        self._do("delete all", folder, lambda: Files.delete_all(self, folder), half, twice=True)

    def rename(self, path: Path, to: Path) -> None:
        self._do("rename", path, lambda: Files.rename(self, path, to))

    def make(self, folder: Path) -> None:
        self._do("make", folder, lambda: Files.make(self, folder), twice=True)

    def drop_empty(self, folder: Path) -> None:
        self._do("drop empty", folder, lambda: Files.drop_empty(self, folder), twice=True)

    def lock(self, path: Path) -> Lock:
        return _Held(self, path)

    def is_locked(self, path: Path) -> bool:
        self.world.step("look at a lock", path, is_write=False)
        return path in self.holders

    def by_others(self, path: Path, write: Callable[[], T]) -> T:
        log = path / "_delta_log"
        before = {*os.listdir(log)} if log.is_dir() else set[str]()

        def half() -> None:
            last = log / "_last_checkpoint"
            pointed = last.read_bytes() if last.exists() else None
            write()
            self._date(log, before)
            _cut_off(path, before, pointed)

        def do() -> T:
            found = write()
            self._date(log, before)
            return found

        return self._do("write", path, do, half)

    def free(self, process: Process) -> None:
        """Let go of what a process holds: it has ended."""
        for path in [path for path, holder in self.holders.items() if holder is process]:
            del self.holders[path]

    def _look(self, what: str, path: Path) -> None:
        fault = self.world.step(what, path, is_write=False)
        if fault is not None and fault.kind in ("before", "half", "after"):
            self.world.die()

    def _do(
        self,
        what: str,
        path: Path,
        do: Callable[[], T],
        half: Callable[[], object] | None = None,
        *,
        twice: bool = False,
    ) -> T:
        fault = self.world.step(what, path, is_write=True) or Fault("")
        if fault.kind == "half" and half is not None:
            with suppress(OSError):
                half()
        if fault.kind in ("before", "half"):
            self.world.die()
        found = do()
        if fault.kind == "again" and twice:
            found = do()
        if fault.kind == "after":
            self.world.die()
        if fault.kind == "lost":
            raise OSError(5, _NOT_TOLD, str(path))
        return found

    def _shuffled(self, found: list[Any]) -> list[Any]:
        found.sort()
        self.world.draw.shuffle(found)
        return found

    def _grow_older(self, seconds: float) -> None:
        """Time has passed by the world's clock, so files are older; what little passes while they are written
        does not matter to anyone."""
        if seconds < 60:
            return
        for file in Files.below(self, self.world.root, ".parquet"):
            found = os.stat(file)
            os.utime(file, (found.st_atime - seconds, found.st_mtime - seconds))

    def _date(self, log: Path, before: set[str]) -> None:
        """Have what delta-rs has just written say the world's time instead of the machine's."""
        now = str(round(self.world.now().timestamp() * 1000)).encode()
        for name in {*os.listdir(log)} - before if log.is_dir() else ():
            if name.endswith(".json"):
                text = (log / name).read_bytes()
                (log / name).write_bytes(_REAL.sub(lambda found: b'"%s":%s' % (found[1], now), text))


class _Held(Lock):
    """A lock of one process on a path."""

    def __init__(self, medium: Medium, path: Path) -> None:
        self._medium, self._path = medium, path
        self._mine: Process | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def take(self, within: float = 0.0, *, shared: bool = False) -> bool:  # nobody shares one here
        world, holders = self._medium.world, self._medium.holders
        deadline = world.monotonic() + within
        world.step("lock", self._path, is_write=False)
        while self._path in holders:
            if world.monotonic() >= deadline:
                return False
            world.sleep(0.01)
        self._mine = holders[self._path] = world.process or Process("nobody")
        return True

    def note(self, content: bytes) -> None:
        self._medium._do(
            "note", self._path, lambda: self._path.write_bytes(content), lambda: self._path.write_bytes(b"{")
        )

    def release(self) -> None:
        if self._mine is not None and self._medium.holders.get(self._path) is self._mine:
            del self._medium.holders[self._path]
        self._mine = None


class Channel:
    """The half of a lease that a process's JVM holds, which lives a little longer than it."""

    def __init__(self, medium: Medium, path: Path, jvm: Process) -> None:
        self._medium, self._path, self._jvm = medium, path.with_name(f"{path.name}.jvm"), jvm

    def tryLock(self) -> Channel | None:  # noqa: N802 (Java's name)
        """Take the lock; None: another has it."""
        holder = self._medium.holders.setdefault(self._path, self._jvm)
        return self if holder is self._jvm else None

    def close(self) -> None:
        """Give it back."""
        if self._medium.holders.get(self._path) is self._jvm:
            del self._medium.holders[self._path]


def _torn(file: Path, content: bytes) -> None:
    file.write_bytes(content[: len(content) // 2])


def _cut_off(path: Path, before: set[str], pointed: bytes | None) -> None:
    """Leave what a library leaves that is killed before its last step.

    Of a commit that is its files, without the entry in the log; a checkpoint that nothing points to; a part
    of a Parquet file.
    """
    log = path / "_delta_log"
    if log.is_dir():
        for name in os.listdir(log):
            file = log / name
            if name not in before and name.endswith(".json"):
                file.unlink()
            elif name == "_last_checkpoint":
                _restored(file, pointed)
        if not before:
            shutil.rmtree(log)
            log.mkdir()
    elif path.is_dir():
        for file in path.glob("*.parquet"):
            _torn(file, file.read_bytes())
    elif path.exists():
        _torn(path, path.read_bytes())


def _restored(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
