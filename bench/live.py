"""A run as a user starts it, in a process of its own: its batches, its memory, its processor time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from headwater.common.report import BatchReport

LOG = "live.log"


class Live:
    """`headwater run --json` over a project, until the block ends.

    Attributes:
        began: when it was started, seconds since the epoch.
        batches: those that it has committed, in order.
        process: its own.

    Args:
        home: the project's folder, where its standard error goes into `live.log`.
        tables: which of its tables; none: all.
    """

    def __init__(self, home: Path, *tables: str) -> None:
        self._home, self._tables = home, tables
        self.began = 0.0
        self.batches: list[BatchReport] = []
        self._failed: list[str] = []

    def __enter__(self) -> Live:
        self.began = time.time()
        self._log = (self._home / LOG).open("w")
        command = [sys.executable, "-m", "headwater", "run", "--json", *self._tables]
        self._run = subprocess.Popen(
            command, cwd=self._home, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.process = psutil.Process(self._run.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._run.poll()
        self._run.terminate()
        self._run.wait()
        self._reader.join()
        self._log.close()
        if kind is None and ended is not None:
            raise RuntimeError(f"the run ended by itself with {ended}: see {self._home / LOG}")

    def _read(self) -> None:
        assert self._run.stdout is not None
        for line in map(json.loads, self._run.stdout):
            if line["event"] == "batch":
                self.batches.append(BatchReport.parse(line))
            if line["event"] == "state" and line["state"] == "failed":
                self._failed.append(line["flow"])

    def wait(self, met: Callable[[], bool], within: float = 600.0) -> None:
        """Wait until something is so.

        Raises:
            RuntimeError: it was not so within so many seconds, or the run or one of its flows has ended.
        """
        until = time.monotonic() + within
        while not met():
            if self._failed or self._run.poll() is not None or time.monotonic() > until:
                failed = f", {', '.join(self._failed)} failed" if self._failed else ""
                raise RuntimeError(f"the run did not come so far{failed}: see {self._home / LOG}")
            time.sleep(0.05)

    def of(self, table: str) -> list[BatchReport]:
        """The batches of a table."""
        return [batch for batch in list(self.batches) if batch.flow == table]
