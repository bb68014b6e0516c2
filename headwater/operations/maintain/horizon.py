"""How far the past of each table may be forgotten: no further than the slowest of those who still read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.errors import CommitError
from headwater.flows.marks import begun, sent
from headwater.operations.rebuild.shadow import Plan, Shadow, Trial
from headwater.operations.savepoints.kept import all_of, folder_of
from headwater.operations.savepoints.restoring import read_of_bronze
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.storage import delta, log, ranges, store
from headwater.storage.intent import IntentFile
from headwater.storage.lake import Lake
from headwater.storage.names import beside
from headwater.storage.ranges import Position


@dataclass(frozen=True)
class Hold:
    """That someone has read a table up to a version, and will read on from there.

    Attributes:
        table: its name.
        generation: which of its lives.
        version: the last that was read; -1: the reader has begun with none yet.
        who: the reader, for people.
    """

    table: str
    generation: int
    version: int
    who: str


def holds(project: Project, lake: Lake) -> list[Hold]:
    """Who still reads the past of which tables: flows, rebuilds and reconciles under way, savepoints, sinks.

    A table that is not there yet holds nothing, nor does one that will begin with a snapshot.
    """
    found = [hold for name in project.tables for hold in _of_flows(project, lake, name)]
    under_way = Plan.read(lake)
    if under_way is not None:
        shadow = Shadow(lake, under_way)
        rebuilt = [name for name in project.tables if name in under_way.tables]
        for hold in (hold for name in rebuilt for hold in _of_flows(project, shadow, name)):
            found.append(replace(hold, who=f"the rebuild of {hold.who}"))
        for source, begin in under_way.begin.items():
            at = Position.parse(begin)
            found.append(Hold(source, at.generation, at.holds, "the rebuild under way"))
        found += _compared(project, lake, under_way.cut or {}, "the rebuild of {}, to be compared")
    for trial in Trial.under_way(lake):
        cut, who = trial.plan.cut or {}, "the reconcile of {}"
        with suppress(CommitError):  # what it had built is removed just now
            for name in (name for name in cut if name in project.tables):
                found += [replace(hold, who=who.format(name)) for hold in _of_flows(project, trial, name)]
        found += [*_compared(project, lake, cut, who), *_compared(project, lake, trial.plan.proven, who)]
    for savepoint in all_of(lake):
        kept = Lake(folder_of(lake, savepoint.name))
        for source, at in read_of_bronze(savepoint, kept).items():
            found.append(Hold(source, at.generation, at.holds, f"the savepoint {savepoint.name}"))
    for name, sink in project.sinks.items():
        for reached in (sent(lake, name).at, begun(lake, name).at):
            if reached.generation:
                found.append(Hold(sink.table, reached.generation, reached.version, f"the sink {name}"))
    return found


def _compared(project: Project, lake: Lake, cut: Mapping[str, int], whose: str) -> Iterator[Hold]:
    """What is held of the live tables that others will be compared with, and of what they have read."""
    for name, version in cut.items():
        place, who = lake.places().get(name), whose.format(name)
        if place is None or not log.first(place.path) <= version <= log.head(place.path):
            continue  # it was swapped meanwhile, or that version has gone
        yield Hold(name, place.generation, version, who)
        for flow in log.read(place.path, version).flows.values():
            yield from _inputs(project, lake, flow["consumed"], who)
        for other in (lake.places()[each] for each in beside(name) if each in lake.places()):
            yield Hold(other.name, other.generation, -1, who)


def _of_flows(project: Project, lake: Lake, name: str) -> Iterator[Hold]:
    """What the flows into a table hold of what they read; one of a table that is there, all that it has not
    begun with yet, if that is from the beginning."""
    table, place = project.tables[name], lake.places().get(name)
    committed = log.flows(place.path) if place is not None else {}
    for flow in table.flows or (table,):
        yield from _pinned(lake, flow, name)
        begun = IntentFile(lake.flow_folder(flow.name, name)).read()
        is_begun = begun is not None and not begun.sealed  # its table does not say so yet
        if flow.name in committed:
            yield from _inputs(project, lake, committed[flow.name]["consumed"], flow.name)
            if begun is not None and is_begun:  # of an input that it had not before, or in another generation
                yield from _inputs(project, lake, begun.consumed, flow.name)
            continue
        for source in (lake.places()[each] for each in flow.sources if each in lake.places()):
            if is_begun or (place is not None and log.first(source.path) == 0):
                yield Hold(source.name, source.generation, -1, flow.name)


def _pinned(lake: Lake, flow: Table, name: str) -> Iterator[Hold]:
    """What a batch that is not done reads of tables as they were when it was pinned."""
    intent = IntentFile(lake.flow_folder(flow.name, name)).read() if flow.snapshots else None
    for source in flow.snapshots if intent is not None and not intent.sealed else ():
        assert intent is not None
        generation, version = map(int, intent.references.get(source, "0:0").split(":"))
        yield Hold(source, generation, version, flow.name)


def _inputs(project: Project, lake: Lake, consumed: dict[str, dict[str, int]], who: str) -> Iterator[Hold]:
    """What a reader holds of its inputs; and of theirs, as far as its input's version has read them: how far
    event time has come is looked up along that way (`headwater.flows.upstream`)."""
    for source in (source for source in consumed if source in project.names()):
        at, place = Position.parse(consumed[source]), lake.places().get(source)
        if place is None or place.generation != at.generation or not ranges.is_as_read(place.path, at):
            continue
        following = delta.entry(place.path, at.holds + 1)
        if 0 <= at.holds < log.head(place.path) and not store.of(following).exists(following):
            continue  # it can't read on: a rebuild begins with what there is
        yield Hold(source, at.generation, at.holds, who)
        if source in project.tables and at.holds >= 0:
            with suppress(CommitError):  # that version has gone
                for flow in log.read(place.path, at.holds).flows.values():
                    yield from _inputs(project, lake, flow["consumed"], who)
