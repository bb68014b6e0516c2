"""Removing a table that no definition makes any more, with the tables that its flow kept beside it.

1. Note in a small file which tables, and which folders of flows, go.
2. One commit of the catalog: they are there no more.
3. Delete what they held, then the note.

Killed before 2, nothing has happened; killed after it, whoever next drops a table, makes one of that name, or
runs `headwater rebuild --clean` deletes what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from headwater.errors import CommitError, LakeError, ProjectError
from headwater.flows import marks
from headwater.operations.rebuild.shadow import Plan
from headwater.project.load import Project
from headwater.runtime import failpoints
from headwater.storage import lease, log, summary
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside, is_engines, replay_name
from headwater.storage.summary import Summary


@dataclass(frozen=True)
class Dropped:
    """What goes with a table.

    Attributes:
        tables: the table, and those beside it.
        flows: the flows of which something is kept.
        rows, bytes: what the tables hold; None, and what is known, where one is broken.
    """

    tables: tuple[str, ...]
    flows: tuple[str, ...]
    rows: int | None
    bytes: int


def find(project: Project, name: str) -> Dropped:
    """What would go with a table; what a drop left that was killed goes at once.

    Raises:
        ProjectError: there is no such table; or the project defines it, it stands beside another, or is the
            engine's.
        LakeError: it is being rebuilt, or another table has read it.
    """
    lake = Lake(project.conf.lake)
    lake.finish()
    places = lake.places()
    if name in project.names():
        below = [each for each in project.below([name]) if each != name]
        read = f", and read by {', '.join(below)}" if below else ""
        where = project.definition(name).where
        raise ProjectError(
            f"{where} is defined by the project{read}",
            code="TABLE_DEFINED",
            where=where,
            hint="remove the definition first",
        )
    loose = without_definition(project, places)
    if name not in loose:
        owner = next((each for each in [*project.names(), *loose] if name in beside(each)), None)
        why = f"stands beside {owner}, and goes with it" if owner else "is no table that can be dropped"
        raise ProjectError(
            f"{name} {why}",
            code="TABLE_NOT_DROPPABLE",
            table=name,
            hint=f"without a definition are: {', '.join(loose) or 'none'}",
        )
    under_way = Plan.read(lake)
    if under_way is not None and name in under_way.tables:
        raise LakeError(
            f"{name} is being rebuilt",
            code="REBUILD_UNDER_WAY",
            table=name,
            hint="end that first: headwater rebuild --abort",
        )
    readers = _readers(project, places, name)
    if readers:
        raise LakeError(
            f"{', '.join(readers)} has read {name}, and would go on in the middle of another table of that "
            "name",
            code="TABLE_HAS_READERS",
            table=name,
            hint=f"remove it first (headwater drop {readers[0]}), or rebuild it if it reads {name} no more",
        )
    tables = tuple(each for each in (name, *beside(name)) if each in places)
    states = [state for each in tables if (state := _state(places[each])) is not None]
    return Dropped(
        tables=tables,
        flows=_flows(project, lake, name),
        rows=sum(state.rows or 0 for state in states) if len(states) == len(tables) else None,
        bytes=sum(state.bytes for state in states),
    )


def drop(project: Project, found: Dropped) -> None:
    """Remove what `find` found.

    Raises:
        LeaseError: a process writes the table.
    """
    lake, name = Lake(project.conf.lake), found.tables[0]
    with ExitStack() as held:
        held.callback(lease.of_live(lake, name).release)
        lake.drop(found.tables, found.flows)
        failpoints.reach("dropped", name)
        lake.finish()


def without_definition(project: Project, places: Mapping[str, Place]) -> list[str]:
    """The tables of the lake that nothing of the project writes, those beside another aside."""
    known = {each for name in project.names() for each in (name, *beside(name))}
    gone = [name for name in sorted(places) if name not in known and not is_engines(name)]
    return [name for name in gone if not any(name in beside(owner) for owner in gone)]


def _readers(project: Project, places: Mapping[str, Place], name: str) -> list[str]:
    """The tables whose flows have read a table, those flows aside that a table of the project has no more."""
    found = []
    for other, place in places.items():
        if is_engines(other) or other in project.raw or not log.exists(place.path):
            continue
        table = project.tables.get(other)
        try:
            flows = log.flows(place.path)
        except CommitError:  # what it has read is not known: what it reads is
            found += [other] if table is not None and name in table.sources else []
            continue
        if table is not None:
            flows = {flow.name: flows.get(flow.name, {}) for flow in table.flows or (table,)}
        if any(name in flow.get("consumed", {}) for flow in flows.values()):
            found.append(other)
    return found


def _state(place: Place) -> Summary | None:
    """What a table holds; None where it is broken."""
    try:
        return summary.of(place)
    except CommitError:
        return None


def _flows(project: Project, lake: Lake, name: str) -> tuple[str, ...]:
    """The flows of which something is kept: those that wrote the table, its replay's, and its sinks'."""
    found = {name, replay_name(name)}
    with suppress(CommitError):
        found |= log.flows(lake.place(name).path).keys()
    found |= marks.sinks_of(lake, name)
    others = {*project.names(), *(flow.name for table in project.tables.values() for flow in table.flows)}
    return tuple(sorted(found - others))
