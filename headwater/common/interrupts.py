"""Ctrl-C: one line and exit code 130, at any moment, whatever the process is doing.

Python's own handler runs between two steps of Python, not while a library computes. So a thread hears of each
signal as well: it stops what can be stopped, and ends a process that does not end by itself.

A handler is called amid whatever the main thread does, itself among that: it takes no lock.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

CODE = 130  # as of a process that SIGINT has ended
GRACE = 5.0  # seconds that a command gets to put its things in order
TWICE = 1.0  # seconds within which a second signal is the first: `timeout` sends it to the group, too
_stops: list[Callable[[], object]] = []
_last: list[Callable[[], object]] = []  # what is done before the process is ended
_cancelled: list[object] = []  # what is running that SIGINT cancels
_hearing = threading.Lock()  # from hearing of a signal to knowing what it cancels
_heard, _wakeup = -1, -1  # the pipe by which the thread hears
_seen: list[bool] = []  # filled once it was interrupted
_unsaid = threading.Lock()


def watch() -> None:
    """Let SIGINT end this process from now on, wherever no command has a handler of its own."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    global _heard, _wakeup
    _heard, _wakeup = os.pipe()
    for end in (_heard, _wakeup):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(_heard,), name="interrupts", daemon=True).start()


def seen() -> bool:
    """Whether the process was interrupted, so that whatever else fails now fails because of it."""
    return bool(_seen)


def say() -> None:
    """Tell a person that the process was interrupted: once."""
    if _unsaid.acquire(blocking=False):
        print("headwater: interrupted", file=sys.stderr, flush=True)


def leave() -> None:
    """Say so, and end the process."""
    say()
    for do in _last:
        with suppress(Exception):
            do()
    os._exit(CODE)


def before_leaving(do: Callable[[], object]) -> None:
    """Have something done, that does not take long, where an interrupted process is ended as it is."""
    _last.append(do)


def ask(stop: Callable[[], object]) -> dict[signal.Signals, Any]:
    """Let SIGINT and SIGTERM call `stop` once; another ends the process, but the first sent twice is one.

    Returns:
        {signal → what was called before}
    """
    asked = SimpleQueue[int]()  # made for handlers: who puts something there waits for nobody

    def wait() -> None:
        asked.get()
        stop()

    threading.Thread(target=wait, name="stop", daemon=True).start()
    return _handled(asked.put)


@contextmanager
def ending() -> Iterator[None]:
    """Let SIGINT and SIGTERM leave what runs in here by SystemExit, so that it ends what it has started.

    A second one ends the process, but the first sent twice is one.
    """

    def end(number: int) -> NoReturn:
        raise SystemExit(128 + number)

    before = _handled(end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Have `stop` called, again and again, once the process is interrupted in here."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


@contextmanager
def cancelling() -> Iterator[None]:
    """Let SIGINT end what runs in here, by what `stopping` has and KeyboardInterrupt, and not the process."""
    token, calls, heard = object(), count(), list[float]()

    def cancel(number: int, frame: FrameType | None) -> None:
        first = next(calls) == 0
        heard.append(time.monotonic())
        if first or heard[-1] - heard[0] > TWICE:  # the same again would come amid its ending
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, cancel)
    if _wakeup >= 0:
        signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)  # an event loop may have taken it
    _cancelled.append(token)
    try:
        yield
    except Exception:
        if heard:  # a library has said in words of its own that it was interrupted
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        with _hearing:
            _cancelled.remove(token)
            while heard and _heard >= 0 and _is_interrupt(_heard):
                pass  # what the thread has not heard yet was meant for this, and not for what comes next


def _handled(do: Callable[[int], object]) -> dict[signal.Signals, Any]:
    calls, heard = count(), list[float]()

    def handle(number: int, frame: FrameType | None) -> None:
        first = next(calls) == 0
        heard.append(time.monotonic())
        if first:
            do(number)
        elif heard[-1] - heard[0] > TWICE:
            os._exit(128 + number)

    return {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _seen.append(True)  # before a library says in words of its own that it was interrupted
    raise KeyboardInterrupt


def _listen(heard: int) -> None:
    while True:
        select.select([heard], [], [])
        with _hearing:
            interrupted, running = _is_interrupt(heard), list(_cancelled)
            if interrupted and not running and signal.getsignal(signal.SIGINT) is _interrupt:
                break
        for each in running if interrupted else ():
            while _cancel(each):
                time.sleep(0.05)
    _seen.append(True)
    first = time.monotonic()
    while (since := time.monotonic() - first) < GRACE:
        _stop()
        if select.select([heard], [], [], 0.1)[0] and _is_interrupt(heard) and since > TWICE:
            break
    leave()


def _cancel(running: object) -> bool:
    """Stop what runs, if it still does; whether it did."""
    with _hearing:
        if found := running in _cancelled:
            _stop()
    return found


def _stop() -> None:
    for stop in list(_stops):
        with suppress(Exception):  # what it would stop has just ended
            stop()


def _is_interrupt(heard: int) -> bool:
    try:
        return os.read(heard, 1) == bytes([signal.SIGINT])
    except BlockingIOError:  # there is nothing to hear any more
        return False


def _unraisable(raised: sys.UnraisableHookArgs) -> None:
    if not issubclass(raised.exc_type, KeyboardInterrupt):  # raised where nothing can be: the thread ends it
        sys.__unraisablehook__(raised)
