"""Processes that take turns: one task runs at a time, and hands over where it touches the store.

A task is a greenlet, which goes on where it stood; which one is next is drawn. A step takes a millisecond;
where all tasks sleep, the time is that at which the first of them wakes. A process that is killed never takes
another step: its tasks end where they stand, its locks are free, what they try on their way out is not done.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet

from headwater.common.times import Clock
from headwater.storage import lake, log, snapshots, target

DEADLY = ("before", "half", "after")
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
SWITCH = 0.3  # how likely another task goes on after a step
LOOKS = (
    1.0  # seconds: who sleeps no longer looks again and again, and sees nothing new while all others sleep
)
MOST = 40_000  # steps of a schedule; more are taken for a deadlock
SHOWN = 60  # steps of a trace that a failure shows
FAULT = "-" * 10  # in a trace: where a process is struck


class Killed(BaseException):
    """The process of this task is no more."""


class Stuck(AssertionError):  # noqa: N818
    """The schedule does not come to an end."""


@dataclass(frozen=True)
class Fault:
    """What happens to a process at one of its steps.

    `kind` is `before`, `half` or `after`: it is killed then; `lost`: the step is done, and an error says it
    is not; `again`: it is done twice; `delay`: its task waits for `seconds`; `pause`: the process does.
    """

    kind: str
    seconds: float = 0.0


@dataclass(eq=False)
class Process:
    """A process: its tasks, what it keeps in memory, and what will happen to it.

    Attributes:
        writes, steps: {how many writes, or steps, it has made → what happens then}.
        until: of a pause, in seconds of the world's clock.
    """

    name: str
    writes: dict[int, Fault] = field(default_factory=dict)
    steps: dict[int, Fault] = field(default_factory=dict)
    is_alive: bool = True
    until: float = 0.0
    written: int = 0
    stepped: int = 0
    struck: list[Fault] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    at_end: list[Callable[[], None]] = field(default_factory=list)
    jvm: Process | None = None


class Task:
    """One of the things that a process does at once, each a thread of a real one."""

    def __init__(self, process: Process, name: str, do: Callable[[], None]) -> None:
        self.process, self.name, self.do = process, name, do
        self.wakes = 0.0
        self.looks = False  # whether it sleeps only to look again whether others have done something
        self.is_done = False
        self.turns: greenlet  # the world's; to switch to it is to let this task go on


class World(Clock):
    """All processes of a schedule, and their clock.

    Args:
        root: the folder of the lake.
        draw: by which all is drawn.
    """

    def __init__(self, root: Path, draw: random.Random) -> None:
        self.root, self.draw = root, draw
        self.seconds = 0.0
        self._trace: list[tuple[float, str, str, str, Path | str]] = []
        self.failures: list[BaseException] = []
        self.advanced: Callable[[float], None] = lambda seconds: None
        self._slept = 0
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._main = getcurrent()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        task = self._current
        if task is None:
            self._pass(seconds)
            return
        self._slept += 1
        if self._slept > MOST:
            self.fail(Stuck("all wait for each other"))
        task.wakes, task.looks = self.seconds + max(seconds, 0.001), seconds <= LOOKS
        self._hand_over(task)

    @property
    def process(self) -> Process | None:
        """Whose turn it is."""
        return self._current.process if self._current else None

    def begin(self, process: Process, name: str, do: Callable[[], None]) -> Task:
        """Let a process have one more task."""
        task = Task(process, name, do)
        task.turns = greenlet(lambda *_: self._live(task), self._main)  # _: what the one before returned
        self._tasks.append(task)
        return task

    def run(self) -> None:
        """Let the tasks go on until all have ended.

        Raises:
            BaseException: the first thing that was found wrong.
        """
        first = self._next()
        if first is not None:
            self._enter(first)
            first.turns.switch()
            self._current = None
            self._tasks = []
        if self.failures:
            raise self.failures[0]

    def step(self, what: str, path: Path | str, *, is_write: bool) -> Fault | None:
        """Say what this task does next; what happens to it there. Other tasks may go on before.

        Raises:
            Killed: its process is no more.
        """
        task = self._current
        if task is None:
            return None
        process = task.process
        self._check(process)
        self.seconds += 0.001
        self.note(what, path)
        if len(self._trace) > MOST:
            self.fail(Stuck(f"{MOST} steps, and no end"))
        process.stepped += 1
        process.written += is_write
        found = process.steps.pop(process.stepped, None)
        if is_write and found is None:
            found = process.writes.pop(process.written, None)
        if found is not None:
            process.struck.append(found)
            self.note(FAULT, f"{found.kind} {found.seconds or ''}")
            if found.kind == "pause":
                process.until = self.seconds + found.seconds
            if found.kind in ("pause", "delay"):
                self.sleep(found.seconds)
                return None
        if self.draw.random() < (SWITCH if is_write else SWITCH / 4):
            self._hand_over(task)
        return found

    def note(self, what: str, where: Path | str) -> None:
        """Add to the trace that something happens."""
        task = self._current
        names = (task.process.name, task.name) if task else ("", "")
        self._trace.append((self.seconds, *names, what, where))

    def trace(self, newest: int = 0) -> list[str]:
        """The steps that were taken, or only the newest of them."""
        return [
            f"{at:12.3f} {process:9} {task:10} {what:10} {self._below(where)}"
            for at, process, task, what, where in self._trace[-newest:]
        ]

    def happened(self) -> set[str]:
        """The kinds of faults that struck, and of steps that were taken."""
        return {str(where).split()[0] if what == FAULT else what for *_, what, where in self._trace}

    def _below(self, where: Path | str) -> str:
        return str(where).replace(str(self.root), "", 1).lstrip("/")

    def kill(self, process: Process) -> None:
        """End a process: nothing that it was at goes on."""
        if process.is_alive:
            process.is_alive = False
            self.note("ends:", process.name)
            for task in self._tasks:
                if task.process is process:
                    task.wakes = 0.0
            for do in process.at_end:
                do()

    def die(self) -> None:
        """End this task's process, here."""
        assert self._current is not None
        self.kill(self._current.process)
        raise Killed

    def fail(self, why: BaseException) -> None:
        """Something is wrong: end all."""
        self.failures.append(why)
        for task in self._tasks:
            self.kill(task.process)
        raise Killed

    def is_running(self, process: Process) -> bool:
        """Whether a process has tasks that have not ended."""
        return any(not task.is_done for task in self._tasks if task.process is process)

    def _check(self, process: Process) -> None:
        if not process.is_alive:
            raise Killed

    def _live(self, task: Task) -> None:
        try:
            self._check(task.process)
            task.do()
        except Killed:
            pass
        except BaseException as e:
            self.failures.append(e)
            for other in self._tasks:
                self.kill(other.process)
        task.is_done = True
        following = self._next()
        if following is not None:
            self._enter(following)
        task.turns.parent = following.turns if following else self._main  # which goes on when a greenlet ends

    def _hand_over(self, task: Task) -> None:
        """Let another task go on, until it is this one's turn again."""
        following = self._next()
        assert following is not None
        if following is not task:
            self._enter(following)
            following.turns.switch()
        self._check(task.process)

    def _next(self) -> Task | None:
        """Whose turn it is now, once the clock is where one may go on; None: all have ended."""
        left = [task for task in self._tasks if not task.is_done]
        if not left:
            return None
        wakes = {task: self._wakes(task) for task in left}
        ready = [task for task in left if wakes[task] <= self.seconds]
        if not ready:
            sleepers = [wakes[task] for task in left if not task.looks] or list(wakes.values())
            self._pass(max(min(wakes.values()), min(sleepers)) - self.seconds)
            ready = [task for task in left if wakes[task] <= self.seconds + 1e-9]
        return ready[0] if len(ready) == 1 else self.draw.choice(ready)

    def _wakes(self, task: Task) -> float:
        return max(task.wakes, task.process.until) if task.process.is_alive else 0.0

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds
        self.advanced(seconds)

    def _enter(self, task: Task) -> None:
        """What modules keep for the whole process is of this one from now on."""
        if self._current is None or self._current.process is not task.process:
            memory = task.process.memory
            if not memory:
                memory.update(heads={}, open=weakref.WeakValueDictionary())
                memory.update(lake=Mutex(self), opening=Mutex(self), snapshots=snapshots._Open())
            log._heads, target._OPEN = memory["heads"], memory["open"]
            snapshots._OPEN = memory["snapshots"]
            lake._LOCK, target._OPENING = memory["lake"], memory["opening"]
        self._current = task


class Mutex:
    """A lock between the tasks of one process, for whose turn others may have to come."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._world.sleep(0.001)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
