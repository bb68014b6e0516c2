"""Whom a commit wakes."""

from __future__ import annotations

import threading

import pytest

from headwater.storage.wake import Heads


class Waiting:
    """A flow that waits for a commit to tables; it has been told of those before."""

    def __init__(self, heads: Heads, *tables: str) -> None:
        beat = heads.beat(tables)
        self._thread = threading.Thread(target=heads.wait, args=(beat, tables), daemon=True)
        self._thread.start()
        while not any(waiting == tables for waiting, _ in heads._waiting):
            assert self._thread.is_alive()

    def wakes(self) -> bool:
        self._thread.join(60)
        return not self._thread.is_alive()

    def sleeps(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Heads:
    monkeypatch.setattr(Heads, "POLL", 600.0)
    return Heads()


def test_a_commit_wakes_who_follows_its_table_and_no_others(heads: Heads) -> None:
    both, one, other = Waiting(heads, "a", "b"), Waiting(heads, "a"), Waiting(heads, "c")
    heads.announce("b")
    assert both.wakes()
    heads.announce("a")
    assert one.wakes()
    heads.announce("d")
    assert other.sleeps()
    heads.announce()
    assert other.wakes()


def test_the_end_of_a_table_wakes_all(heads: Heads) -> None:
    waiting = Waiting(heads, "a")
    heads.end("b")
    assert waiting.wakes() and heads.ended("b")


def test_who_has_not_looked_since_a_commit_does_not_wait(heads: Heads) -> None:
    beat = heads.beat(["a", "b"])
    heads.announce("a")
    heads.wait(beat, ["a", "b"])
    heads.announce("c")
    beat = heads.beat(["a"])
    heads.announce()
    heads.wait(beat, ["a"])
