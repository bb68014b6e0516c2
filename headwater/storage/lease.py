"""The lease: one process, and its JVM, may write a table.

Two locks of the operating system, each freed by the kernel when its holder is gone and not before:
`flock` by this process, and a file lock by the JVM it started. A successor gets the lease only when
both are free: a JVM that outlives a killed parent for a moment, or a writer that is merely stopped,
still holds its half. The file names the holders, so that a refusal can.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from headwater.common import locks
from headwater.errors import LeaseError
from headwater.runtime import jvm

LOOKING = 0.1  # seconds that someone who merely looks whether a lease is free may hold it
WAIT_FOR_JVM = 15.0  # seconds that an orphaned JVM gets to notice that its parent is gone


class Lease:
    """The right to write one table, from construction to `release` or the end of the process.

    Args:
        table: its name, for messages.
        folder: the flow's folder.

    Attributes:
        folder: the same.

    Raises:
        LeaseError: another process holds it; the message names its PID.
    """

    def __init__(self, table: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "lease"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not locks.locked(self._fd, LOOKING):
            pid = _holder(path).get("pid", "unknown")
            os.close(self._fd)
            raise LeaseError(
                f"{table}: process {pid} is writing it",
                code="LEASE_HELD",
                table=table,
                file=path,
                hint=f"stop that one first (kill {pid})",
            )
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


def holder(folder: Path) -> int | None:
    """The process that holds a flow's lease, by its PID; None when nobody does."""
    path = folder / "lease"
    try:
        with locks.opened(path, os.O_RDWR) as file:
            return None if locks.locked(file) else int(_holder(path).get("pid", 0))
    except FileNotFoundError:
        return None


def _lock_in_jvm(table: str, path: Path) -> Any:
    java = jvm.gateway().jvm.java
    channel = java.io.RandomAccessFile(f"{path}.jvm", "rw").getChannel()
    deadline = time.monotonic() + WAIT_FOR_JVM
    while (lock := channel.tryLock()) is None:
        if time.monotonic() > deadline:
            channel.close()
            holder = _holder(path).get("jvm", "unknown")
            raise LeaseError(
                f"{table}: the JVM {holder} of an ended run still lives",
                code="LEASE_HELD_BY_JVM",
                table=table,
                file=path,
                hint=f"end it first (kill {holder})",
            )
        time.sleep(0.05)
    return lock


def _holder(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes() or b"{}"))
    except (FileNotFoundError, ValueError):
        return {}
