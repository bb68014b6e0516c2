"""Which tables have earlier generations that may have something of records: those that an earlier definition
made of them, too."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from headwater.planner.changes import facts
from headwater.project.load import Project
from headwater.storage import store
from headwater.storage.lake import Lake


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
    known = {*project.names(), *(each.topic for each in project.raw.values())}
    gone = {
        each for them in of.values() for each in them or ()
    } - known  # nothing says what these were made of
    found = {*project.below(list(bronze)), *places["topic"].to_pylist(), *gone}
    while more := {name for name, them in of.items() if them is None or them & found} - found:
        found |= more
    return [name for name in project.names() if name in found]


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
