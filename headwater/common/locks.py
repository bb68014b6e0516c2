"""Locks of the operating system on files: the kernel frees each when its holder ends, in whatever way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.common import times

POLL = 0.01  # seconds


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """A file, or a folder, open to be locked; its lock is free when the `with` block ends.

    A file that may be created gets the folders above it, too.
    """
    if flags & os.O_CREAT:
        path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, flags, 0o644)
    try:
        yield file
    finally:
        os.close(file)


def locked(file: int, within: float = 0.0, *, shared: bool = False) -> bool:
    """Lock an open file, waiting for it for so many seconds; whether that worked. `shared`: with others."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = times.clock.monotonic() + within
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if times.clock.monotonic() >= deadline:
                return False
            times.clock.sleep(POLL)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Have a file locked, however long that has to be waited for."""
    with opened(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
