"""A consistent cut of a lake: a version of each table, so that all of them fit, chosen while flows go on.

Each commit says how far its flow had read (`storage.commit`). So versions are chosen against the stream:
the newest of the tables that nothing reads, then of what they read. What is looked at later is at least as
far as had been read of it. A table that a flow writes beside its own, and before it, is taken at the newest
version without a batch that the table lacks. If the catalog changes meanwhile, all is chosen anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.project.load import Project
from headwater.storage import log
from headwater.storage.lake import Lake, Place
from headwater.storage.log import Commit
from headwater.storage.names import beside


@dataclass(frozen=True)
class Chosen:
    """One table in a cut: which generation of it, and the commit of the version that was chosen."""

    place: Place
    commit: Commit

    @property
    def version(self) -> int:
        """The version's number."""
        return self.commit.version


Cut = dict[str, Chosen]


def choose(project: Project, lake: Lake) -> Cut:
    """A cut of all tables of a lake, in the order in which rows flow; those without a definition come last.

    Raises:
        CommitError: a table's log was cleaned past what is looked for.
    """
    while True:
        places = lake.places()
        cut = _chosen(project, {name: at for name, at in places.items() if log.exists(at.path)})
        if lake.places() == places:
            return cut


def derived(project: Project) -> list[str]:
    """The tables that follow from bronze, each with those that its flow may write beside it."""
    return [each for name in project.tables for each in (name, *beside(name))]


def _chosen(project: Project, places: Mapping[str, Place]) -> Cut:
    found: Cut = {}
    for name in reversed(project.names()):
        if name in places:
            found[name] = _newest(places[name])
            for other in places.keys() & beside(name).keys():
                beside_it = log.not_past(places[other].path, found[name].commit.flows)
                found[other] = Chosen(places[other], beside_it)
    ordered = {
        each: found[each] for name in project.names() for each in (name, *beside(name)) if each in found
    }
    return {**ordered, **{name: _newest(places[name]) for name in sorted(places.keys() - found.keys())}}


def _newest(place: Place) -> Chosen:
    return Chosen(place, log.read(place.path, log.head(place.path)))


__all__ = ["Chosen", "Cut", "choose", "derived"]
