"""A pseudo-terminal, as a person who sits at one has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
from typing import TextIO

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A real one: what a process writes to `out`, a person would see."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns, lines)
        self.out: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self._seen = b""
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, lines: int = 24) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def close(self) -> None:
        """As when its window is closed."""
        if not self._closed.is_set():
            self._closed.set()
            self._reader.join()
            os.close(self._ours)

    @property
    def raw(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """All that was ever written, without colours and movements."""
        return ESCAPES.sub("", self.raw).replace("\r", "\n").splitlines()

    def _read(self) -> None:
        while not self._closed.is_set():
            if select.select([self._ours], [], [], 0.05)[0]:
                self._seen += os.read(self._ours, 65536)
