"""Who sends and who reads, in a process of their own, as in a user's life they are no part of the run."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any

Samples = dict[str, list[float]]
Watch = Callable[..., Samples]

_SPAWN = multiprocessing.get_context("spawn")  # a fork would share what threads of the JVM's client hold


class Outside:
    """A process that sends from its beginning on, and samples what readers see when it is asked to.

    Args:
        watch: what it does, a function of a module: sends, samples from when its first argument is set until
            its second one is, and returns what it found.
        arguments: its others.
    """

    def __init__(self, watch: Watch, *arguments: Any) -> None:
        self._begun, self._done, self._found = _SPAWN.Event(), _SPAWN.Event(), _SPAWN.SimpleQueue()
        given = (watch, self._begun, self._done, self._found, arguments)
        self._process = _SPAWN.Process(target=_watched, args=given, daemon=True)

    @property
    def pid(self) -> int:
        """Its number, once it was started."""
        assert self._process.pid is not None
        return self._process.pid

    def sample(self, seconds: float) -> Samples:
        """What is found within so many seconds.

        Raises:
            RuntimeError: it has failed, and says itself by what; or it was killed.
        """
        self._begun.set()
        time.sleep(seconds)
        self._done.set()
        while self._found.empty() and self._process.is_alive():
            time.sleep(0.05)
        found: Samples | None = None if self._found.empty() else self._found.get()
        if found is None:
            raise RuntimeError("who sends and reads has failed")
        return found

    def __enter__(self) -> Outside:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.terminate()
        self._process.join()


def times(apart: float, done: Event | threading.Event) -> Iterator[None]:
    """Go on about so many seconds apart, whatever is done meanwhile, until `done` is set.

    A reader that rests for so long after each answer would ask more often, and take more of the cores, the
    quicker it is answered; and one that asks in step with the batches would find all rows of one age.
    """
    draw, due = random.Random(11), time.monotonic()
    while not done.wait(max(due - time.monotonic(), 0.0)):
        yield
        due = max(due + apart * draw.uniform(0.5, 1.5), time.monotonic())


def _watched(watch: Watch, begun: Event, done: Event, found: Any, arguments: tuple[Any, ...]) -> None:
    samples: Samples | None = None
    try:
        samples = watch(begun, done, *arguments)
    finally:
        found.put(samples)
