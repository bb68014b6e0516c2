"""How a commit wakes the flows below it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable


class Heads:
    """That something was committed, and which tables get no more commits in this run.

    A flow that waits is woken at once by a commit of this process to a table that it follows, and within
    `POLL` by another's. Others sleep on: of many flows most have nothing to do with a commit, and to look
    costs each a millisecond.
    """

    POLL = 1.0  # seconds

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._all, self._beats = 0, Counter[str]()
        self._waiting: list[tuple[Collection[str], threading.Condition]] = []

    def announce(self, table: str | None = None) -> None:
        """A commit was made to a table; None: whoever waits is to look."""
        with self._lock:
            self._wake(table)

    def end(self, table: str) -> None:
        """No more commits will come to this table in this run."""
        with self._lock:
            self._ended.add(table)
            self._wake(None)

    def begin(self, tables: Iterable[str]) -> None:
        """Commits may come to these tables again."""
        with self._lock:
            self._ended -= set(tables)

    def ended(self, table: str) -> bool:
        """Whether the table gets no more commits in this run."""
        with self._lock:
            return table in self._ended

    def beat(self, tables: Collection[str]) -> int:
        """A number that grows with every commit to these tables; take it before looking at them."""
        with self._lock:
            return self._beat(tables)

    def wait(self, beat: int, tables: Collection[str]) -> None:
        """Wait for a commit to these tables after `beat`, or for `POLL` seconds."""
        with self._lock:
            if self._beat(tables) != beat:
                return
            waiter = (tables, threading.Condition(self._lock))
            self._waiting.append(waiter)
            try:
                waiter[1].wait(self.POLL)
            finally:
                self._waiting.remove(waiter)

    def _beat(self, tables: Collection[str]) -> int:
        return self._all + sum(self._beats[table] for table in tables)

    def _wake(self, table: str | None) -> None:
        if table is None:
            self._all += 1
        else:
            self._beats[table] += 1
        for tables, condition in self._waiting:
            if table is None or table in tables:
                condition.notify()
