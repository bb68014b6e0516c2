"""Which tables may have something of records: those that an earlier definition made of them, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from headwater.planner.changes import facts
from headwater.project.load import Project
from headwater.storage import store
from headwater.storage.lake import Lake


def derived(project: Project, lake: Lake, bronze: Collection[str]) -> list[str]:
    """The tables whose live generation may be made of bronze tables, and those below; in the graph's order.

    It may be by its definition, or by a former one; or since an earlier generation of what it has read was,
    which it may have read; or nothing says what it is made of.
    """
    there = [name for name in project.tables if name in lake.places()]
    live = {name: facts.ever_made_of(lake.flow_folder(name)) for name in there}
    earlier = {name: _made_of(lake, name) for name in there}
    of = {name: {*(live[name] or ()), *(earlier[name] or ())} for name in there}
    ever = {*project.below(list(bronze)), *_unknown(project, of.values())}
    ever |= {name for name in there if earlier[name] is None}
    while more := {name for name, them in of.items() if them & ever} - ever:
        ever |= more
    now = {*bronze, *(name for name, them in live.items() if them is None or them & ever)}
    return [name for name in project.below(sorted(now)) if name not in project.raw]


def concerned(project: Project, lake: Lake, bronze: Collection[str], places: pa.Table) -> list[str]:
    """The tables that have records, that are made of them, or of which an earlier generation may be; in the
    order of the graph.

    Args:
        project: the definitions.
        lake: where the tables lie.
        bronze: the bronze tables that have the records.
        places: where the records stand.
    """
    of = {name: _made_of(lake, name) for name in project.names()}
    found = {*bronze, *derived(project, lake, bronze), *places["topic"].to_pylist()}
    found |= _unknown(project, of.values())
    while more := {name for name, them in of.items() if them is None or them & found} - found:
        found |= more
    return [name for name in project.names() if name in found]


def _unknown(project: Project, made_of: Iterable[set[str] | None]) -> set[str]:
    """What tables were made of and what the project has no more: nothing says what that was made of."""
    known = {*project.names(), *(each.topic for each in project.raw.values())}
    return {each for them in made_of for each in them or ()} - known


def _made_of(lake: Lake, name: str) -> set[str] | None:
    """What the earlier generations of a table were made of; None where that is not known."""
    live, folder, notes = lake.places().get(name), lake.at(name, 1).parent, lake.flow_at(name, 1).parent
    there, noted = ({path.name for path in store.of(each).find(each, "g[0-9]*")} for each in (folder, notes))
    found = set[str]()
    for generation in (there | noted) - ({live.path.name} if live else set()):
        of = facts.ever_made_of(notes / generation)
        if of is None and generation in there:
            return None
        found |= of or set()
    return found
