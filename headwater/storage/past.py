"""The past of a lake's tables, older versions and their files: kept for who reads it, or forgotten.

    <lake>/_keeping.lock      shared by all who keep it; who forgets some takes it alone
    <lake>/_forgetting.lock   locked by who forgets some, and by who begins to keep it

Who begins to keep it, or has told that it holds some of it, is sure of what is there once it has had the
second lock: those who did not know of that have ended. A killed process keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.storage import store
from headwater.storage.lake import Lake


@contextmanager
def keeping(lake: Lake) -> Iterator[None]:
    """Keep the past of all tables; who forgets some ends first."""
    lock = store.of(lake.root).lock
    with lock(lake.root / "_keeping.lock") as kept:
        with lock(lake.root / "_forgetting.lock") as turn:
            turn.take(float("inf"))
            kept.take(float("inf"), shared=True)
        yield


@contextmanager
def forgetting(lake: Lake) -> Iterator[bool]:
    """Forget some of it, one process after the other; False: somebody keeps it."""
    lock = store.of(lake.root).lock
    with lock(lake.root / "_forgetting.lock") as turn, lock(lake.root / "_keeping.lock") as kept:
        turn.take(float("inf"))
        yield kept.take()
