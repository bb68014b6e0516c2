"""Of those who would work at once, so many work at a time, in the order of their deadlines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.common.wait import until
from headwater.flows import turns
from headwater.flows.run_queue import RunQueue
from headwater.storage.wake import Heads


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


def came(queue: RunQueue, works: list[str], waits: dict[str, float]) -> list[Worker]:
    """Workers that came one after another, by how long each may wait."""
    workers: list[Worker] = []
    for name, wait in waits.items():
        workers.append(Worker(queue, works, name, wait))
        assert until(lambda: len(queue._waiting) + len(queue._working) == len(workers), within=60)
    return workers


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_first_who_came_works_first(at_once: int) -> None:
    queue, works, names = RunQueue(at_once, long=600), list[str](), [*"abcdef"]
    workers = came(queue, works, dict.fromkeys(names, 0.0))
    for number, worker in enumerate(workers):
        assert worker.begun.wait(60)
        for later in workers[number + at_once :]:
            assert not later.begun.is_set()
        worker.ended()
    assert works == names


def test_who_may_wait_lets_others_go_first() -> None:
    queue, works = RunQueue(1, long=600), list[str]()
    waits = {"first": 0.0, "may wait": 600.0, "may wait a little": 300.0, "may not": 0.0}
    workers = came(queue, works, waits)
    for at in (0, 3, 2, 1):
        assert workers[at].begun.wait(60)
        workers[at].ended()
    assert works == ["first", "may not", "may wait a little", "may wait"]


def test_nobody_waits_for_what_takes_long() -> None:
    works: list[str] = []
    workers = came(RunQueue(1, long=0.01), works, dict.fromkeys("abc", 0.0))
    for worker in workers:
        assert worker.begun.wait(60)
    for worker in workers:
        worker.ended()
    assert works == [*"abc"]


def test_who_waits_for_another_system_lets_others_work_and_is_the_next_after() -> None:
    queue, works, answered = RunQueue(1, long=600), list[str](), threading.Event()

    def ask() -> None:
        with queue.turn():
            works.append("asks")
            with queue.aside():
                assert answered.wait(60)
            works.append("knows")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert until(lambda: works == ["asks"] and not queue._working, within=60)
    first, second = came(queue, works, {"first": 0.0, "second": 0.0})
    assert first.begun.wait(60)
    answered.set()
    assert until(lambda: len(queue._waiting) == 2, within=60)
    assert works == ["asks", "first"]
    first.ended()
    asking.join(60)
    second.ended()
    assert works == ["asks", "first", "knows", "second"]


def test_without_an_answer_a_turn_ends_too() -> None:
    queue = RunQueue(1, long=600)
    with pytest.raises(ValueError, match="no answer"), queue.turn(), queue.aside():
        raise ValueError("no answer")
    with queue.turn():
        pass


def test_who_has_no_turn_waits_for_another_system_as_he_is() -> None:
    queue = RunQueue(1, long=600)
    with queue.turn():
        beside = threading.Thread(target=lambda: queue.aside().__enter__(), daemon=True)
        beside.start()
        beside.join(60)
        assert not beside.is_alive()


def test_an_error_ends_a_turn() -> None:
    queue = RunQueue(1, long=600)
    with pytest.raises(ValueError, match="mine"), queue.turn():
        raise ValueError("mine")
    with queue.turn():
        pass


def test_batches_begin_a_trigger_apart_however_long_their_turn_took_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, began = 0.0, list[float]()
    takes = iter([3.0, 0.0, 1.5, 0.0])

    @contextmanager
    def turn(wait: float) -> Iterator[None]:
        pass_by(next(takes))
        yield

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += max(seconds, 0.0)

    def step() -> bool:
        began.append(now)
        pass_by(0.5)
        return True

    context = SimpleNamespace(
        heads=Heads(),
        once=False,
        stop=SimpleNamespace(is_set=lambda: len(began) == 4, wait=pass_by),
        queue=SimpleNamespace(turn=turn),
        turn=lambda flow: nullcontext(True),
    )
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: now))
    turns.take_turns(cast(Any, context), "gold.t", ["silver.s"], step, apart=2.0)
    assert began == [3.0, 5.0, 8.5, 10.5]
