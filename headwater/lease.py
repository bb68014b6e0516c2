"""The lease: one process, and its JVM, may write a table.

Two locks of the operating system, each freed by the kernel when its holder is gone and not before:
`flock` by this process, and a file lock by the JVM it started. A successor gets the lease only when
both are free: a JVM that outlives a killed parent for a moment, or a writer that is merely stopped,
still holds its half. The file names the holders, so that a refusal can.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from headwater import jvm
from headwater.errors import LeaseError

WAIT_FOR_JVM = 15.0  # seconds that an orphaned JVM gets to notice that its parent is gone


class Lease:
    """The right to write one table, from construction to `release` or the end of the process.

    Args:
        table: its name, for messages.
        folder: the flow's folder.

    Raises:
        LeaseError: another process holds it; the message names its PID.
    """

    def __init__(self, table: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "lease"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path).get("pid", "unknown")
            os.close(self._fd)
            raise LeaseError(
                f"{table}: process {holder} is writing it; stop that one first (kill {holder})"
            ) from None
        try:
            self._jvm_lock = _lock_in_jvm(table, path)
        except LeaseError:
            os.close(self._fd)
            raise
        holder = json.dumps({"pid": os.getpid(), "jvm": jvm.pid()}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, holder, 0)

    def release(self) -> None:
        """Give the lease back; nothing may be written after."""
        with suppress(Py4JError, OSError):  # a JVM that has ended holds nothing
            self._jvm_lock.channel().close()
        os.close(self._fd)


def _lock_in_jvm(table: str, path: Path) -> Any:
    java = jvm.gateway().jvm.java
    channel = java.io.RandomAccessFile(f"{path}.jvm", "rw").getChannel()
    deadline = time.monotonic() + WAIT_FOR_JVM
    while (lock := channel.tryLock()) is None:
        if time.monotonic() > deadline:
            channel.close()
            holder = _holder(path).get("jvm", "unknown")
            raise LeaseError(
                f"{table}: the JVM {holder} of an ended run still lives; end it first (kill {holder})"
            )
        time.sleep(0.05)
    return lock


def _holder(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes() or b"{}"))
    except (FileNotFoundError, ValueError):
        return {}
