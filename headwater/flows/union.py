"""Several flows into one table: each appends the rows of its own source, in turns, by its own position."""

from __future__ import annotations

from headwater.common.durations import interval
from headwater.flows.context import Context
from headwater.flows.derived import DerivedFlow
from headwater.flows.turns import take_turns
from headwater.project.definitions import Table


class UnionFlow:
    """The flows of one table, taking turns: one process and one thread write it."""

    def __init__(self, context: Context, table: Table) -> None:
        self.name = table.name
        self._context = context
        self._apart = interval(table.limits.trigger or "0s").total_seconds()
        self._inputs = [name for name in table.sources if name not in context.project.references]
        target = context.open(table)
        self._flows = [DerivedFlow(context, flow, target) for flow in table.flows]
        self.committer = self._flows[0].committer  # whose only target all flows share

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the inputs have ended and are drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        with self._context.turn(self.name) as mine:
            if mine:
                self.recover()
        take_turns(self._context, self.name, self._inputs, self.step, self._apart)

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: a quarantine is of an earlier life of the table.
        """
        for flow in self._flows:
            flow.recover()

    def step(self) -> bool:
        """Take one batch of each flow that has something new; whether there was one."""
        took = [flow.step() for flow in self._flows]
        return any(took)
