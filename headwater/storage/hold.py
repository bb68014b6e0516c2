"""Holding flows between two batches, by locks of the operating system: a killed holder holds nothing.

    _flows/<table>/<generation>/turn   locked by the table's flow for each batch
    _flows/<table>/<generation>/gate   locked by who wants the flow at rest; it begins no batch meanwhile

Who holds locks the gates first, so that no batch begins, and then the turns, so that none is under way.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

POLL = 0.01  # seconds


@contextmanager
def turn(folder: Path, stop: threading.Event) -> Iterator[bool]:
    """Take a flow's turn, once nobody holds it; False: the run ended before.

    Args:
        folder: of what the flow keeps.
        stop: set when the run shall end.
    """
    with _opened(folder / "gate") as gate, _opened(folder / "turn") as lock:
        while not stop.is_set():
            if _locked(gate, fcntl.LOCK_SH):
                fcntl.flock(gate, fcntl.LOCK_UN)
                if _locked(lock, fcntl.LOCK_EX):
                    yield True
                    return
            stop.wait(POLL)
        yield False


@contextmanager
def hold(folders: Sequence[Path], within: float) -> Iterator[bool]:
    """Keep the flows of these folders between two batches; False: one of them did not come to rest.

    Args:
        folders: of what the flows keep.
        within: how many seconds their batches may take to end.
    """
    deadline = time.monotonic() + within
    with ExitStack() as locks:
        at_rest = all(
            _wait(locks.enter_context(_opened(folder / name)), deadline)
            for name in ("gate", "turn")
            for folder in folders
        )
        if not at_rest:
            locks.close()
        yield at_rest


def _wait(lock: int, deadline: float) -> bool:
    while not _locked(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _locked(fd: int, kind: int) -> bool:
    """Lock an open file if that is possible at once; whether it was."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
