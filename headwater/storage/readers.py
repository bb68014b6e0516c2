"""Who has read a table, as the tables beside it say."""

from __future__ import annotations

from headwater.storage import log, store
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside


def of(place: Place) -> list[str]:
    """The tables whose flows have read a table, as the lake that it lies in says."""
    exists = store.of(place.path).exists
    root = next((folder for folder in place.path.parents if exists(folder / "_catalog")), None)
    places = Lake(root).places() if root else {}
    others = {
        name: other for name, other in places.items() if not any(name in beside(each) for each in places)
    }
    return sorted(
        name
        for name, other in others.items()
        if any(place.name in flow["consumed"] for flow in log.flows(other.path).values())
    )
