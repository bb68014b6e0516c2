"""Which flow a declaration gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from headwater.flows.aggregated import AggregateFlow
from headwater.flows.changed import ChangedFlow
from headwater.flows.context import Context
from headwater.flows.derived import DerivedFlow
from headwater.flows.files import FilesFlow
from headwater.flows.final import FinalFlow
from headwater.flows.final_joins import FinalJoinsFlow
from headwater.flows.joined import JoinedFlow
from headwater.flows.processed import ProcessFlow
from headwater.flows.publish import PublishFlow
from headwater.flows.realtime import RealtimeFlow
from headwater.flows.source import SourceFlow
from headwater.flows.union import UnionFlow
from headwater.flows.view import ViewFlow
from headwater.planner.outlines import Kind
from headwater.project.definitions import Table
from headwater.storage.commit import Committer


class Flow(Protocol):
    """What a run runs: `run` returns when the run ends, or raises what stopped the flow."""

    name: str

    def run(self) -> None:
        """Work until the run ends."""


@runtime_checkable
class Committing(Protocol):
    """A flow that commits to tables."""

    name: str
    committer: Committer


_FLOWS: dict[Kind, Callable[[Context, Table], Flow]] = {
    "rows": DerivedFlow,
    "joined rows": JoinedFlow,
    "final joins": FinalJoinsFlow,
    "changed rows": ChangedFlow,
    "aggregate": AggregateFlow,
    "final windows": FinalFlow,
    "process": ProcessFlow,
    "view": ViewFlow,
}


def flow_of(context: Context, name: str) -> Flow:
    """The flow of a table, an alert or a sink.

    Raises:
        ProjectError: there is no such table.
    """
    project = context.project
    if name in project.topics:
        return SourceFlow(context, project.topics[name])
    if name in project.files:
        return FilesFlow(context, project.files[name])
    if name in project.alerts:
        return RealtimeFlow(context, project.alerts[name])
    if name in project.sinks:
        return PublishFlow(context, project.sinks[name])
    table = project.definition(name)
    assert isinstance(table, Table)
    return UnionFlow(context, table) if table.flows else _FLOWS[context.tables[name].kind](context, table)
