"""The lease: one process, and its JVM, may write a table.

Two locks of the operating system, each freed by the kernel when its holder is gone and not before:
`flock` by this process, and a file lock by the JVM it started. A successor gets the lease only when
both are free: a JVM that outlives a killed parent for a moment, or a writer that is merely stopped,
still holds its half. The file names the holders, so that a refusal can.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from headwater.common import times
from headwater.errors import LeaseError
from headwater.runtime import jvm
from headwater.storage import store
from headwater.storage.lake import Lake

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
        path = folder / "lease"
        self._lock = store.of(folder).lock(path)
        if not self._lock.take(LOOKING):
            pid = _holder(path).get("pid", "unknown")
            self._lock.release()
            raise LeaseError(
                f"{table}: process {pid} is writing it",
                code="LEASE_HELD",
                table=table,
                file=path,
                hint=f"stop that one first (kill {pid})",
            )
        with ExitStack() as undone:
            undone.callback(self._lock.release)
            self._in_jvm = _locked_in_jvm(table, path)
            undone.callback(self._in_jvm.close)
            self._lock.note(json.dumps({"pid": os.getpid(), "jvm": jvm.pid()}).encode())
            undone.pop_all()

    def release(self) -> None:
        """Give the lease back; nothing may be written after."""
        with suppress(Py4JError, OSError):  # a JVM that has ended holds nothing
            self._in_jvm.close()
        self._lock.release()


def of_live(lake: Lake, table: str) -> Lease:
    """The lease of the generation of a table that is live once it is held: it may be swapped before.

    Raises:
        LeaseError: another process holds it.
    """
    while True:
        mine = Lease(table, lake.flow_folder(table))
        with ExitStack() as undone:
            undone.callback(mine.release)
            if mine.folder == lake.flow_folder(table):
                undone.pop_all()
                return mine


def holder(folder: Path) -> int | None:
    """The process that holds a flow's lease, by its PID; None when nobody does."""
    path = folder / "lease"
    return int(_holder(path).get("pid", 0)) if store.of(path).is_locked(path) else None


def _channel(path: Path) -> Any:
    """A file that the JVM has open to lock it: Java's `FileChannel`."""
    return jvm.gateway().jvm.java.io.RandomAccessFile(f"{path}.jvm", "rw").getChannel()


def _locked_in_jvm(table: str, path: Path) -> Any:
    channel = _channel(path)
    deadline = times.clock.monotonic() + WAIT_FOR_JVM
    while channel.tryLock() is None:
        if times.clock.monotonic() > deadline:
            channel.close()
            holder = _holder(path).get("jvm", "unknown")
            raise LeaseError(
                f"{table}: the JVM {holder} of an ended run still lives",
                code="LEASE_HELD_BY_JVM",
                table=table,
                file=path,
                hint=f"end it first (kill {holder})",
            )
        times.clock.sleep(0.05)
    return channel


def _holder(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(store.of(path).get(path) or b"{}"))
    except (FileNotFoundError, ValueError):
        return {}
