"""Flows whose tables have a quarantine, the open records of which others ask them to resolve."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from headwater.flows.replay import Resolution
from headwater.flows.turns import TableFlow
from headwater.storage import mailbox
from headwater.storage.mailbox import Request


class ResolvingFlow(TableFlow):
    """One of them: between two batches it does what is asked for."""

    _folder: Path

    def resolve(self, request: Request) -> Resolution:
        """Do what is asked for with the open records of the quarantine.

        Raises:
            FlowError: the table has no quarantine, or definitions have changed since they were read.
        """
        raise NotImplementedError

    def settle(self) -> None:
        """End a replay that failed between its two commits."""
        raise NotImplementedError

    def _turn(self) -> bool:
        for request, to in mailbox.take(self._folder):
            where = self._context.project.definition(self.name).where
            mailbox.answer(to, lambda request=request: asdict(self.resolve(request)), where)  # type: ignore[misc]
            self.settle()
        return self.step()
