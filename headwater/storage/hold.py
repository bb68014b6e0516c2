"""Holding flows between two batches, by locks of the operating system: a killed holder holds nothing.

    _flows/<table>/<generation>/turn   locked by the table's flow for each batch
    _flows/<table>/<generation>/gate   locked by who wants the flow at rest; it begins no batch meanwhile

Who holds locks the gates first, so that no batch begins, and then the turns, so that none is under way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headwater.common import locks, times
from headwater.storage import store


@contextmanager
def turn(folder: Path, stop: threading.Event) -> Iterator[bool]:
    """Take a flow's turn, once nobody holds it; False: the run ended before.

    Args:
        folder: of what the flow keeps.
        stop: set when the run shall end.
    """
    lock = store.of(folder).lock
    with lock(folder / "turn") as mine:
        while not stop.is_set():
            with lock(folder / "gate") as gate:
                begins = gate.take()
            if begins and mine.take():
                yield True
                return
            stop.wait(locks.POLL)
        yield False


@contextmanager
def hold(folders: Sequence[Path], within: float) -> Iterator[bool]:
    """Keep the flows of these folders between two batches; False: one of them did not come to rest.

    Args:
        folders: of what the flows keep.
        within: how many seconds their batches may take to end.
    """
    deadline = times.clock.monotonic() + within
    with ExitStack() as held:
        at_rest = all(
            held.enter_context(store.of(folder).lock(folder / name)).take(deadline - times.clock.monotonic())
            for name in ("gate", "turn")
            for folder in folders
        )
        if not at_rest:
            held.close()
        yield at_rest
