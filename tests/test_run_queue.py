"""Of those who would work at once, so many work at a time, in the order of their deadlines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.common.run_queue import RunQueue


class Worker:
    """Works in its turn, until it is told to end."""

    def __init__(self, queue: RunQueue, works: list[str], name: str, wait: float = 0.0) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self._queue, self._works, self._name, self._wait = queue, works, name, wait
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._queue.turn(self._wait):
            self._works.append(self._name)
            self.begun.set()
            self.end.wait()

    def ended(self) -> None:
        self.end.set()
        self._thread.join()


@contextmanager
def waiting(queue: RunQueue, count: int) -> Iterator[list[Worker]]:
    """Workers that came one after another, and who began of them: the first of each pair."""
    works: list[str] = []
    workers = []
    for number in range(count):
        workers.append(Worker(queue, works, str(number)))
        while len(queue._waiting) + len(queue._working) <= number:
            pass
    yield workers
    for worker in workers:
        worker.ended()
    assert works == [str(number) for number in range(count)]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_first_who_came_works_first(at_once: int) -> None:
    queue = RunQueue(at_once, long=600)
    with waiting(queue, 6) as workers:
        for number, worker in enumerate(workers):
            assert worker.begun.wait(60)
            for later in workers[number + at_once :]:
                assert not later.begun.is_set()
            worker.ended()


def test_who_may_wait_lets_others_go_first() -> None:
    queue, works = RunQueue(1, long=600), list[str]()
    workers = []
    for name, wait in (("first", 0.0), ("may wait", 600.0), ("may wait a little", 300.0), ("may not", 0.0)):
        workers.append(Worker(queue, works, name, wait))
        while len(queue._waiting) + len(queue._working) < len(workers):
            pass
    for at in (0, 3, 2, 1):
        assert workers[at].begun.wait(60)
        workers[at].ended()
    assert works == ["first", "may not", "may wait a little", "may wait"]


def test_nobody_waits_for_what_takes_long() -> None:
    with waiting(RunQueue(1, long=0.01), 3) as workers:
        for worker in workers:
            assert worker.begun.wait(60)


def test_an_error_ends_a_turn() -> None:
    queue = RunQueue(1, long=600)
    with pytest.raises(ValueError, match="mine"), queue.turn():
        raise ValueError("mine")
    with queue.turn():
        pass
