"""What memory and processor time a process and all below it take."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from types import TracebackType

import psutil

EVERY = 2.0  # seconds


class Footprint:
    """The most memory that processes had while they were watched: the pages that they share counted once.

    Attributes:
        most: in GB.

    Args:
        process: this one and all below it are watched; a broker, which has a session of its own, is not.
        apart: numbers of others that are not.
    """

    def __init__(self, process: psutil.Process, *, apart: Collection[int] = ()) -> None:
        self.most = 0.0
        self._process, self._apart, self._over = process, apart, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Footprint:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, round(memory(self._process, self._apart), 2))
            if self._over.wait(EVERY):
                return


def memory(process: psutil.Process, apart: Collection[int] = ()) -> float:
    """Memory of a process and all below it, in GB: the proportional set size."""
    whole = 0
    for each in _family(process, apart):
        with suppress(psutil.Error):
            whole += each.memory_full_info().pss
    return whole / 1e9


def seconds(process: psutil.Process) -> float:
    """Seconds of a core that a process and all below it have taken."""
    whole = 0.0
    for each in _family(process, ()):
        with suppress(psutil.Error):
            times = each.cpu_times()
            whole += times.user + times.system
    return whole


def _family(process: psutil.Process, apart: Collection[int]) -> Iterator[psutil.Process]:
    session = os.getsid(process.pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error, ProcessLookupError):
            if each.pid not in apart and os.getsid(each.pid) == session:
                yield each
