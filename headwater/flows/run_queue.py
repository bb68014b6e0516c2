"""Who works next, where many would work at once: who is to be ready first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class RunQueue:
    """So many work at a time, in the order of their deadlines: of when they came, and how long they may wait.

    Where all work at once on few cores, each takes as long as all together, and what is handed from one to
    the next waits as long each time. One after another, each is as quick as alone. Who takes longer than
    `long` no longer counts, so that nobody waits for what takes minutes.

    Args:
        at_once: how many; None: as many as there are cores.
        long: after how many seconds somebody else may begin beside one who still works.
    """

    def __init__(self, at_once: int | None = None, long: float = 3.0) -> None:
        self._at_once, self._long = at_once or os.cpu_count() or 1, long
        self._lock, self._numbers = threading.Lock(), count()
        self._waiting: dict[threading.Condition, tuple[float, int]] = {}  # until when, and who came first
        self._working: dict[threading.Condition, float] = {}  # since when

    @contextmanager
    def turn(self, wait: float = 0.0) -> Iterator[None]:
        """Work, once it is one's turn.

        Args:
            wait: seconds that one may wait: for so long, others who may not go first.
        """
        mine = threading.Condition(self._lock)
        with self._lock:
            self._waiting[mine] = time.monotonic() + wait, next(self._numbers)
            try:
                while (left := self._left() if self._next() is mine else None) != 0:
                    mine.wait(left)
                self._working[mine] = time.monotonic()
            finally:
                del self._waiting[mine]
                self._wake()
        try:
            yield
        finally:
            with self._lock:
                del self._working[mine]
                self._wake()

    def _next(self) -> threading.Condition | None:
        return min(self._waiting, key=self._waiting.__getitem__, default=None)

    def _left(self) -> float:
        """Seconds until one more may work at the latest; 0: now."""
        now = time.monotonic()
        until = [began + self._long - now for began in self._working.values()]
        counting = [left for left in until if left > 0]
        return min(counting) if len(counting) >= self._at_once else 0.0

    def _wake(self) -> None:
        following = self._next()
        if following is not None:
            following.notify()
