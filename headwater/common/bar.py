"""How far something is that takes long: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

LIVE = 0.2  # seconds from one look to the next, for a terminal
LINES, RARER = 5.0, 1.5  # seconds to the first line in a pipe; how much later than that each next one comes


@contextmanager
def shown(
    what: str, total: int | None = None, done: Callable[[], int] = int, out: TextIO | None = None
) -> Iterator[None]:
    """Show how far the block is, as long as it lasts.

    Args:
        what: it does.
        total: how many bytes it has to get; None: only how long it has taken is shown.
        done: how many of them it has.
        out: where; None: standard error.
    """
    console, over = Console(file=out or sys.stderr), threading.Event()
    follow = _bar if console.is_terminal and not console.is_dumb_terminal else _lines
    thread = threading.Thread(target=follow, args=(console, what, total, done, over), name="bar", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bar(
    console: Console, what: str, total: int | None, done: Callable[[], int], over: threading.Event
) -> None:
    measured = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    columns = measured if total else (SpinnerColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, transient=True) as bar:
        console.show_cursor(True)
        task = bar.add_task(what, total=total)
        while not over.wait(LIVE):
            bar.update(task, completed=min(done(), total or 0))


def _lines(
    console: Console, what: str, total: int | None, done: Callable[[], int], over: threading.Event
) -> None:
    began, pause = time.monotonic(), LINES
    print(f"headwater: {what}", file=console.file, flush=True)
    while not over.wait(pause):
        seconds, pause = time.monotonic() - began, pause * RARER
        print(f"headwater: {what}: {_so_far(seconds, done(), total)}", file=console.file, flush=True)


def _so_far(seconds: float, done: int, total: int | None) -> str:
    """`34 of 90 MB, 12 s left`."""
    if total is None:
        return f"{seconds:.0f} s so far"
    left = f", {seconds * (total - done) / done:.0f} s left" if 0 < done < total else ""
    return f"{min(done, total) / 1e6:.0f} of {total / 1e6:.0f} MB{left}"
