"""Who works next, where many would work at once: who is to be ready first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeAlias

Due: TypeAlias = tuple[float, int]  # until when one may wait, and which in the order of coming one is


class RunQueue:
    """So many work at a time, in the order of their deadlines: of when they came, and how long they may wait.

    Where all work at once on few cores, each takes as long as all together, and what is handed from one to
    the next waits as long each time. One after another, each is as quick as alone. Who takes longer than
    `long` no longer counts, so that nobody waits for what takes minutes; nor does who waits for another
    system, which takes no core.

    Args:
        at_once: how many; None: as many as there are cores.
        long: after how many seconds somebody else may begin beside one who still works.
    """

    def __init__(self, at_once: int | None = None, long: float = 3.0) -> None:
        self._at_once, self._long = at_once or os.cpu_count() or 1, long
        self._lock, self._numbers = threading.Lock(), count()
        self._waiting: dict[threading.Condition, Due] = {}
        self._working: dict[int, tuple[Due, float]] = {}  # by thread, and since when

    @contextmanager
    def turn(self, wait: float = 0.0) -> Iterator[None]:
        """Work, once it is one's turn.

        Args:
            wait: seconds that one may wait: for so long, others who may not go first.
        """
        with self._lock:
            self._take((time.monotonic() + wait, next(self._numbers)))
        try:
            yield
        finally:
            with self._lock:
                self._give()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Wait for another system within one's turn: somebody else works meanwhile, and one's own turn
        comes again before that of all who came later."""
        with self._lock:
            due = self._give()
        yield
        if due is not None:
            with self._lock:
                self._take(due)

    def _take(self, due: Due) -> None:
        mine = threading.Condition(self._lock)
        self._waiting[mine] = due
        try:
            while (left := self._left() if self._next() is mine else None) != 0:
                mine.wait(left)
            self._working[threading.get_ident()] = due, time.monotonic()
        finally:
            del self._waiting[mine]
            self._wake()

    def _give(self) -> Due | None:
        due, _ = self._working.pop(threading.get_ident(), (None, 0.0))
        self._wake()
        return due

    def _next(self) -> threading.Condition | None:
        return min(self._waiting, key=self._waiting.__getitem__, default=None)

    def _left(self) -> float:
        """Seconds until one more may work at the latest; 0: now."""
        now = time.monotonic()
        until = [began + self._long - now for _, began in self._working.values()]
        counting = [left for left in until if left > 0]
        return min(counting) if len(counting) >= self._at_once else 0.0

    def _wake(self) -> None:
        following = self._next()
        if following is not None:
            following.notify()
