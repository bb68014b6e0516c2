"""A store of files that ends this process: SIGKILL to it, its JVM and its workers at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headwater.storage.store import Files

T = TypeVar("T")


def die() -> None:
    """SIGKILL to this process and to all that it started: it leads a group of its own."""
    os.killpg(0, signal.SIGKILL)


class Deadly(Files):
    """Files, as they are until `arm` is called."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._later = 0.0
        self._lock = threading.Lock()

    def arm(self, writes: int, later: float) -> None:
        """Die before the n-th write from here, or so many seconds after that place was reached."""
        self._left, self._later = writes, later

    def _write(self) -> None:
        with self._lock:
            if self._left is None:
                return
            self._left -= 1
            if self._left > 0:
                return
            self._left = None
            if not self._later:
                die()
        timer = threading.Timer(self._later, die)
        timer.daemon = True
        timer.start()

    def put(self, path: Path, content: bytes) -> None:
        self._write()
        super().put(path, content)

    def put_new(self, path: Path, content: bytes) -> None:
        self._write()
        super().put_new(path, content)

    def delete(self, path: Path) -> None:
        self._write()
        super().delete(path)

    def delete_all(self, folder: Path) -> None:
        self._write()
        super().delete_all(folder)

    def rename(self, path: Path, to: Path) -> None:
        self._write()
        super().rename(path, to)

    def by_others(self, path: Path, write: Callable[[], T]) -> T:
        self._write()
        return super().by_others(path, write)
