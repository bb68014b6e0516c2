"""How a commit wakes the flows below it."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Heads:
    """That something was committed, and which tables get no more commits in this run.

    A flow that waits is woken at once by a commit of this process, and within `POLL` by another's.
    """

    POLL = 1.0  # seconds

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: set[str] = set()
        self._beat = 0

    def announce(self) -> None:
        """A commit was made."""
        with self._changed:
            self._beat += 1
            self._changed.notify_all()

    def end(self, table: str) -> None:
        """No more commits will come to this table in this run."""
        with self._changed:
            self._ended.add(table)
            self._beat += 1
            self._changed.notify_all()

    def begin(self, tables: Iterable[str]) -> None:
        """Commits may come to these tables again."""
        with self._changed:
            self._ended -= set(tables)

    def ended(self, table: str) -> bool:
        """Whether the table gets no more commits in this run."""
        with self._changed:
            return table in self._ended

    def beat(self) -> int:
        """A number that grows with every commit; take it before looking at the tables."""
        with self._changed:
            return self._beat

    def wait(self, beat: int) -> None:
        """Wait for a commit after `beat`, or for `POLL` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._beat != beat, timeout=self.POLL)
