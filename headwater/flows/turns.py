"""When a flow that reads tables works: after commits of what it reads, until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headwater.flows.context import Context


def take_turns(
    context: Context, flow: str, inputs: Sequence[str], step: Callable[[], bool], apart: float = 0.0
) -> None:
    """Call `step` as long as it finds something to do, and again after each commit, until the run ends.

    Args:
        context: the run.
        flow: the flow's name.
        inputs: the tables that it reads. With `once`, the flow ends when they have, and nothing is left.
        step: does one batch; whether there was anything to do.
        apart: the least time from the beginning of one batch to that of the next, in seconds.

    Raises:
        FlowError: something refused the table; and what `step` raises.
    """
    heads = context.heads
    while not context.stop.is_set():
        beat, began = heads.beat(), time.monotonic()
        ended = all(map(heads.ended, inputs))
        with context.turn(flow) as mine:
            worked = mine and step()
        if worked:
            if not context.once:
                context.stop.wait(began + apart - time.monotonic())
            continue
        if context.once and ended:
            return
        heads.wait(beat)
