"""What a run is doing: the steps of its start, then its flows in their order; live on a terminal, else lines.

A thread of its own looks and draws. It spends no more than a small share of the time on looking, and ends
where there is nowhere to draw any more (the terminal was closed, the pipe has no reader): the flows go on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from headwater.common import interrupts
from headwater.common.progress import Board
from headwater.run import picture

if TYPE_CHECKING:
    from headwater.query.inspect.status import Status

SHARE = 0.02  # of the time: what looking may take
_TICK = 0.1  # seconds within which another step of the start is seen
_STYLES = {"": "bold", "failed": "red", "waiting": "yellow", "starting": "dim", "done": "dim"}
Flows = Sequence["Status"]


class Screen:
    """Shows what the flows of a run do, as long as the `with` block lasts.

    Args:
        board: of the run.
        out: where it is shown; None: nowhere.
        caption: what stands below the flows.
    """

    def __init__(
        self, board: Board, out: TextIO | None = sys.stdout, caption: Callable[[], str] = str
    ) -> None:
        self._paper: _Paper = _Paper() if out is None else _on(out, caption)
        self._board = board
        self._look: Callable[[], Flows] = tuple
        self._done = threading.Event()
        if out is None:
            self._done.set()
        self._thread = threading.Thread(target=self._work, name="screen", daemon=True)
        self._interrupts = ExitStack()

    def watch(self, look: Callable[[], Flows]) -> None:
        """Have flows to show: `look` gives them as they are now, in the order in which they are shown."""
        self._look = look

    def __enter__(self) -> Self:
        self._paper.begin()
        self._thread.start()
        self._interrupts.enter_context(interrupts.stopping(self.close))
        return self

    def __exit__(self, *_: object) -> None:
        self._interrupts.close()
        self.close()

    def close(self) -> None:
        """Show nothing any more; what was live goes from the terminal."""
        self._done.set()
        self._thread.join(2.0)  # it may be waiting for Kafka
        with suppress(OSError, ValueError, SystemExit):
            self._paper.end()

    def _work(self) -> None:
        began = due = time.monotonic()
        stage, flows, drawn = "", self._look(), None
        with suppress(
            OSError, ValueError, SystemExit
        ):  # the last is how rich ends where a pipe has no reader
            while not self._done.wait(_TICK):
                before, stage, now = stage, self._board.stage, time.monotonic()
                if stage != before or now >= due:
                    worked = time.thread_time()
                    with suppress(Exception):  # a table is being swapped, say: the next look will tell
                        flows = self._look()
                    due = now + max(self._paper.every, (time.thread_time() - worked) / SHARE)
                drawing = (stage, flows, int(now - began))
                if drawing != drawn and not self._done.is_set():
                    self._paper.draw(*drawing)
                    drawn = drawing


def _on(out: TextIO, caption: Callable[[], str]) -> _Paper:
    console = Console(file=out, highlight=False)
    live = out.isatty() and not console.is_dumb_terminal  # FORCE_COLOR makes a pipe rich's "terminal"
    return _Terminal(console, caption) if live else _Pipe(out, caption)


class _Paper:
    """What is drawn on."""

    every = 1.0  # seconds from one look at the flows to the next

    def begin(self) -> None:
        """Before the first picture."""

    def draw(self, stage: str, flows: Flows, seconds: int) -> None:
        """A picture, so long after the beginning.

        Raises:
            OSError, ValueError, SystemExit: there is nobody to see it any more.
        """

    def end(self) -> None:
        """After the last."""


class _Terminal(_Paper):
    """All anew, in the place of the last picture; what is said meanwhile goes above it."""

    def __init__(self, console: Console, caption: Callable[[], str]) -> None:
        self._console, self._caption = console, caption
        self._size = console.size = self._asked()
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=sys.stderr.isatty(),
        )

    def begin(self) -> None:
        self._live.start()
        self._console.show_cursor(True)  # it is there too where the process is ended at once

    def draw(self, stage: str, flows: Flows, seconds: int) -> None:
        size = self._asked()
        if size != self._size:  # the terminal has put what was drawn elsewhere
            self._size = self._console.size = size
            self._console.clear()
        first = f"{stage or _running(flows)} · {picture.elapsed(seconds)}"
        lines = [(first, "running")]
        lines += picture.table(flows, size.width, size.height - 3) if flows else []
        lines += [(caption, "dim")] if (caption := self._caption()) else []
        text = Text("\n").join(Text(line, style=_STYLES.get(state, "")) for line, state in lines)
        text.no_wrap, text.overflow = True, "ellipsis"
        self._live.update(text, refresh=True)

    def end(self) -> None:
        self._live.stop()

    def _asked(self) -> ConsoleDimensions:
        """How large this terminal is now: rich asks that of standard input."""
        size = os.get_terminal_size(self._console.file.fileno())
        return ConsoleDimensions(size.columns or 80, size.lines or 24)


class _Pipe(_Paper):
    """What has changed since it was last said, a line of each flow."""

    every = 5.0

    def __init__(self, out: TextIO, caption: Callable[[], str]) -> None:
        self._out, self._caption = out, caption
        self._said: dict[str, object] = {}

    def draw(self, stage: str, flows: Flows, seconds: int) -> None:
        self._say("", stage or _running(flows))
        for flow in flows:
            if flow.rows or flow.lag or flow.state in ("waiting", "failed"):
                self._say(
                    flow.flow, picture.sentence(flow), (flow.rows, flow.quarantined, flow.lag, flow.state)
                )
        self._say("caption", self._caption())

    def _say(self, what: str, line: str, content: object = None) -> None:
        """Write a line, unless it would say the same as the last one of `what`."""
        if line and self._said.get(what) != (content or line):
            self._said[what] = content or line
            print(line, file=self._out, flush=True)


def _running(flows: Flows) -> str:
    return f"{len(flows)} flow{'s' if len(flows) != 1 else ''} running"
