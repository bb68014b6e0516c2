"""Runs of a project: as a process that can be killed, or in this one, on the Spark session of the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from io import StringIO, TextIOBase
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from headwater.common.progress import Board
from headwater.project.load import load_project
from headwater.run.supervisor import Options, Run

if TYPE_CHECKING:
    from harness import Project

HEADWATER = str(Path(sys.executable).parent / "headwater")
BRONZE, SILVER, GOLD = "bronze.iot_metrics", "silver.cpu_metrics", "gold.cpu_usage_5m"
GIVEN_UP = 20.0  # seconds that a run gets to end after its test has failed
LIMIT = 240.0  # seconds that any one condition may take to come true, on a machine with other work too

Event = dict[str, Any]
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, within: float = LIMIT) -> T:
    """What `condition` returns, as soon as that is true."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}"
        time.sleep(0.1)
    return found


class Heard:
    """What a run says: JSON lines are `events`, each with the time `heard`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.events: list[Event] = []
        self.unreadable: list[str] = []  # lines of standard output that are none
        self._changed = threading.Condition()

    @property
    def pid(self) -> int:
        """The process that runs the flows."""
        raise NotImplementedError

    @property
    def stderr(self) -> str:
        """What people are told."""
        raise NotImplementedError

    def code(self) -> int | None:
        """The exit code; None while it runs."""
        raise NotImplementedError

    def said(self) -> str:
        """The end of all that it said, for a failure's message."""
        lines = [json.dumps(event) for event in self.events[-12:]]
        return "\n".join([f"exit code {self.code()}", *lines, self.stderr[-3000:]])

    def batches(self, flow: str | None = None) -> list[Event]:
        events = [event for event in list(self.events) if event["event"] == "batch"]
        return [event for event in events if flow is None or event["flow"] == flow]

    def batch(self, flow: str | None = None, after: int = 0, within: float = LIMIT) -> Event:
        """Wait for the batch that follows the first `after` ones; it."""
        self.until(lambda: len(self.batches(flow)) > after, f"batch {after} of {flow or 'any flow'}", within)
        return self.batches(flow)[after]

    def until(self, condition: Callable[[], T], what: str, within: float = LIMIT) -> T:
        """Wait for something that this run brings about, and for no longer than it lives."""
        deadline = time.monotonic() + within
        while not (found := condition()):
            ended = self.code() is not None
            assert not ended or condition(), f"the run ended before: {what}\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}\n{self.said()}"
            with self._changed:
                self._changed.wait(0.3)  # each event of the run is a reason to look again
        return found

    def hear(self, line: str) -> None:
        """One line of standard output."""
        try:
            event = {**json.loads(line), "heard": time.monotonic()}
        except ValueError:
            self.unreadable.append(line)
            return
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


class Running(Heard):
    """A `headwater run` as a process of its own."""

    def __init__(self, project: Project, arguments: Sequence[str], fail: str | None, files: Path) -> None:
        super().__init__(project)
        self._stderr = files.with_suffix(".stderr")
        environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_FAIL_POINT"}
        if fail is not None:
            environment["HEADWATER_FAIL_POINT"] = fail
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [HEADWATER, "run", "--json", *arguments],
                cwd=project.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def code(self) -> int | None:
        return None if self._reader.is_alive() else self.process.poll()

    def jvm(self) -> int:
        """The process id of its JVM, once it holds every table."""
        held = lambda: {self.project.holder(table).get("pid") for table in (BRONZE, SILVER, GOLD)}  # noqa: E731
        self.until(lambda: held() == {self.pid}, "the leases")
        return self.project.holder(BRONZE)["jvm"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = LIMIT) -> int:
        """Its exit code: negative where a signal ended it."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:.0f} s\n{self.said()}") from None
        self._reader.join(10)
        assert code < 0 or not self.unreadable, f"no events: {self.unreadable}"
        return code

    def end(self) -> None:
        """Leave nothing behind: neither the process nor its JVM."""
        children = psutil.Process(self.pid).children() if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                if "kafka.Kafka" not in child.cmdline():  # the broker is the project's, not the run's
                    child.kill()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.hear(line)


class Within(Heard):
    """A run in this process; what only a process can show, such as signals, is not its matter.

    A live one goes without alerts, each of which would hold more task slots than the session has.
    """

    def __init__(self, project: Project, options: Options) -> None:
        super().__init__(project)
        self._notices = StringIO()
        loaded = load_project(project.root)
        if not options.once:
            loaded = replace(loaded, alerts={})
        self._run = Run(loaded, options, Board(_Lines(self), self._notices))
        self._done: Future[int] = Future()
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def stderr(self) -> str:
        raised = self._done.exception() if self._done.done() else None
        return self._notices.getvalue() + ("" if raised is None else "".join(format_exception(raised)))

    def code(self) -> int | None:
        if not self._done.done():
            return None
        return 1 if self._done.exception() else self._done.result()

    def wait(self, within: float | None = None) -> int:
        """The exit code, once it has ended; raises what it raised."""
        code = self._done.result(within)
        assert not self.unreadable, f"no events: {self.unreadable}"
        return code

    def stop(self) -> int:
        """Ask it to end, as SIGTERM would; its exit code."""
        self._run.stop()
        return self.wait()

    def __enter__(self) -> Within:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Leave nothing behind; one that does not end shall not keep a test that has failed."""
        self._run.stop()
        wait([self._done], timeout=None if kind is None else GIVEN_UP)

    def _work(self) -> None:
        try:
            self._done.set_result(self._run())
        except BaseException as e:
            self._done.set_exception(e)


class _Lines(TextIOBase):
    """Where a board of this process writes its lines."""

    def __init__(self, run: Within) -> None:
        self._run = run

    def write(self, text: str) -> int:
        if text != "\n":
            self._run.hear(text)
        return len(text)


def alive(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(pid: int, within: float = LIMIT) -> None:
    """Wait for the end of a process that is no child of ours."""
    until(lambda: not alive(pid), f"the end of process {pid}", within)
