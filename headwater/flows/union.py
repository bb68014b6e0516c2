"""Several flows into one table: each appends the rows of its own source, in turns, by its own position."""

from __future__ import annotations

from headwater.flows.context import Context
from headwater.flows.derived import DerivedFlow
from headwater.flows.joined import JoinedFlow
from headwater.flows.replay import Resolution
from headwater.flows.resolving import ResolvingFlow
from headwater.project.definitions import Table
from headwater.storage.mailbox import Request


class UnionFlow(ResolvingFlow):
    """The flows of one table, taking turns: one process and one thread write it."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        target = context.open(table)
        self._folder = context.lake.flow_folder(table.name, target.place.name)
        self._flows = [
            (JoinedFlow if context.tables[flow.name].joins else DerivedFlow)(context, flow, target)
            for flow in table.flows
        ]
        self.committer = self._flows[0].committer  # of the table that all flows share

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: a quarantine is of an earlier life of the table.
        """
        for flow in self._flows:
            flow.recover()

    def resolve(self, request: Request) -> Resolution:
        """Each flow does it with the records of its topics."""
        return sum((flow.resolve(request) for flow in self._flows if flow.decodes), start=Resolution())

    def settle(self) -> None:
        for flow in self._flows:
            flow.settle()

    def step(self) -> bool:
        """Take one batch of each flow that has something new; whether there was one."""
        took = [flow.step() for flow in self._flows]
        return any(took)
