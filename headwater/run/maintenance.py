"""Maintenance while a run goes on: every table when it is due, and when another process asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from headwater.common import durations, memory
from headwater.errors import FlowError
from headwater.errors.causes import describe
from headwater.flows.context import Context
from headwater.flows.declared import Committing, Flow
from headwater.operations import maintain
from headwater.operations.maintain import Maintained
from headwater.run.faults import has_failed
from headwater.storage import mailbox
from headwater.storage.names import beside
from headwater.storage.target import Target

_POLL = 0.5  # seconds


class Upkeep:
    """Maintains the tables of a run.

    Args:
        context: the run.
        flows: its flows, by name, as they are made.
    """

    def __init__(self, context: Context, flows: Mapping[str, Flow]) -> None:
        every = context.project.conf.maintain.every
        self._context = context
        self._flows = flows
        self._every = durations.parse(every).total_seconds() if every else None
        self._due = time.monotonic() + (self._every or 0.0)

    def run(self) -> None:
        """Maintain until the run ends."""
        while not self._context.stop.wait(_POLL):
            try:
                self._look()
            except BaseException as e:  # of a disk that is full, as the next look may do better
                self._context.board.say_once("maintenance can not see what there is to do", describe(e))

    def _look(self) -> None:
        """Do what is asked for, and what is due."""
        for flow in list(self._flows.values()):
            if isinstance(flow, Committing):
                self._answer(flow.name, flow)
        for name in self._context.board.failed():
            if name not in self._flows:
                self._answer(name, None)
        if self._every is not None and time.monotonic() >= self._due:
            try:
                self.step()
            finally:
                memory.give_back()
                self._due = time.monotonic() + self._every

    def step(self) -> None:
        """Maintain each table once."""
        for flow in list(self._flows.values()):
            if isinstance(flow, Committing) and not self._context.stop.is_set():
                self._maintain(flow)
        project, lake = self._context.project, self._context.lake
        if not self._context.stop.is_set():
            self._try("the engine's own tables", lambda: maintain.engines(project, lake))

    def _answer(self, name: str, flow: Committing | None) -> None:
        def do() -> list[dict[str, Any]]:
            done = self._maintain(flow) if flow else has_failed(name)
            if isinstance(done, FlowError):
                raise done
            return [asdict(one) for one in done]

        for _, to in mailbox.take(self._context.lake.flow_folder(name), maintain.KIND):
            mailbox.answer(to, do, self._context.project.definition(name).where)

    def _maintain(self, flow: Committing) -> list[Maintained] | FlowError:
        project, lake = self._context.project, self._context.lake
        return self._try(
            flow.name, lambda: maintain.targets_of(project, lake, flow.name, self._targets(flow))
        )

    def _targets(self, flow: Committing) -> list[Target]:
        """The table of a flow, and all those beside it.

        Raises:
            FlowError: another generation takes its place.
        """
        places, table = self._context.lake.places(), flow.committer.table.place
        if places.get(table.name) != table:
            raise FlowError(
                f"{table.name} has another generation now, which its flow has not begun",
                code="SWAPPED_MEANWHILE",
                table=table.name,
            )
        return [Target.shared(places[name]) for name in (table.name, *beside(table.name)) if name in places]

    def _try(self, what: str, do: Callable[[], list[Maintained]]) -> list[Maintained] | FlowError:
        """What was done, or why not: the flows go on, and the next time may do better."""
        try:
            return do()
        except Exception as e:
            why = FlowError(
                f"{what} could not be maintained: {describe(e)}", code="NOT_MAINTAINED", table=what
            )
            if not self._context.stop.is_set():
                self._context.board.say(str(why))
            return why
