"""When a flow that reads tables works: after commits of what it reads, until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headwater.common.durations import interval
from headwater.flows.context import Context
from headwater.project.definitions import Table
from headwater.storage.commit import Committer


def take_turns(
    context: Context,
    flow: str,
    inputs: Sequence[str],
    step: Callable[[], bool],
    apart: float = 0.0,
    after: Sequence[str] = (),
) -> None:
    """Call `step` as long as it finds something to do, and again after each commit, until the run ends.

    Args:
        context: the run.
        flow: the flow's name.
        inputs: the tables that it follows. With `once`, the flow ends when they have, and nothing is left.
        step: does one batch; whether there was anything to do.
        apart: the least time from the beginning of one batch to that of the next, in seconds.
        after: the tables that it reads as they are. With `once`, it begins when they have ended.

    Raises:
        FlowError: something refused the table; and what `step` raises.
    """
    heads = context.heads
    while not context.stop.is_set():
        beat = heads.beat(inputs)
        ended = all(map(heads.ended, inputs))
        if context.once and not all(map(heads.ended, after)):
            heads.wait(beat, inputs)
            continue
        with context.queue.turn(apart), context.turn(flow) as mine:
            began = time.monotonic()
            worked = mine and not context.stop.is_set() and step()
        if worked:
            if not context.once:
                context.stop.wait(began + apart - time.monotonic())
            continue
        if context.once and ended:
            return
        heads.wait(beat, inputs)


class TableFlow:
    """The flow of a table that reads tables, in turns with who wants it at rest; a subclass does the work.

    Args:
        context: the run.
        table: the definition.
    """

    committer: Committer
    _after: Sequence[str] = ()

    def __init__(self, context: Context, table: Table) -> None:
        self.name = table.name
        self._context = context
        self._inputs = [*context.project.streams(table)]
        self._after = [name for flow in table.flows or (table,) for name in flow.snapshots]
        self._apart = interval(table.limits.trigger or "0s").total_seconds()

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the inputs have ended and are drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        with self._context.turn(self.name) as mine:
            if mine:
                self.recover()
        take_turns(self._context, self.name, self._inputs, self._turn, self._apart, self._after)

    def recover(self) -> None:
        """Do what a killed process left half done."""
        raise NotImplementedError

    def step(self) -> bool:
        """Take one batch; whether there was anything to take."""
        raise NotImplementedError

    def _turn(self) -> bool:
        """What is done in a turn; whether there was anything to do."""
        return self.step()
