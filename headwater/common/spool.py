"""A stream that a thread of its own writes: nobody who says something waits for those who should read it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

_MOST = 10_000  # texts that wait to be read
_PATIENCE = 2.0  # seconds without a text that is read, after which the end does not wait for the others


class Spool:
    """Takes texts, each of which ends with `flush`, and hands them on as they are read.

    A terminal that is held (Ctrl-S), or a program that has stopped to read its pipe, would otherwise hold who
    writes. Where more wait than there is room for, the oldest are left out, and how many is said.

    Args:
        stream: says where they go now.
        left_out: what says that so many were left out.
        most: how many may wait.
    """

    def __init__(
        self, stream: Callable[[], TextIO], left_out: Callable[[int], str], most: int = _MOST
    ) -> None:
        self._stream, self._left_out, self._most = stream, left_out, most
        self._part: list[str] = []
        self._waiting = deque[str]()
        self._lost = self._taken = 0
        self._is_writing = False
        self._error: OSError | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="headwater-spool", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all is read, as long as some of it is."""
        with self._changed:
            taken, end = self._taken, time.monotonic() + _PATIENCE
            while (self._waiting or self._is_writing) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
                if taken != self._taken:
                    taken, end = self._taken, time.monotonic() + _PATIENCE

    def write(self, text: str) -> int:
        """Add to the text that the next `flush` ends.

        Raises:
            OSError: why nothing more can be written.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            self._part.append(text)
        return len(text)

    def flush(self) -> None:
        """Have the text written when those before it are."""
        with self._changed:
            if self._part:
                self._waiting.append("".join(self._part))
                self._part.clear()
            if len(self._waiting) > self._most:
                self._waiting.popleft()
                self._lost += 1
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._taken += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._is_writing = True
                lost, self._lost = self._lost, 0
                text = self._waiting.popleft()
            try:
                stream = self._stream()
                stream.write(f"{self._left_out(lost)}\n{text}" if lost else text)
                stream.flush()
            except OSError as e:
                with self._changed:
                    self._error, self._is_writing = e, False
                    self._waiting.clear()
                    self._taken += 1
                    self._changed.notify_all()
                return
