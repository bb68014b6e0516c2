"""A cut as a lake of its own."""

from __future__ import annotations

import uuid

from headwater.operations.savepoints.cut import Cut, tables
from headwater.storage.lake import Lake, Place


def make(cut: Cut, source: Lake, into: Lake, *, full: bool = False, own_ids: bool = False) -> None:
    """Make a lake of the tables of a cut, in the same generations, with the definitions they were made by.

    Args:
        cut: the tables.
        source: the lake that they are of.
        into: one that has no table.
        full: whether files are copied; else they are linked.
        own_ids: whether the tables are others than those of `source`, which will go on by themselves.

    Raises:
        CommitError: a file is gone.
    """
    into.begin()
    places = {}
    for name, chosen in cut.items():
        old = chosen.place
        path = into.at(name, old.generation)
        tables.take(old.path, chosen.version, path, full=full)
        tables.definition(source, name, old.generation, into.flow_at(name, old.generation))
        places[name] = Place(name, old.generation, path, uuid.uuid4().hex if own_ids else old.id)
    into.swap(places)
