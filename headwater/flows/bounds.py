"""How far the flows of a run may read; one that goes on with what comes, as far as there is something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.planner.event_time import EventTime
from headwater.storage import log, pruning, snapshots
from headwater.storage.erasure import Offsets
from headwater.storage.lake import Place
from headwater.storage.names import lookup_name
from headwater.storage.pruning import Reach
from headwater.storage.ranges import Position


@dataclass(frozen=True)
class Answered:
    """What the rows of a table were told by its lookup.

    Attributes:
        place: its table of answers; None: there is none.
        reached: see `Identity.reached`.
        erased: the records that none of it may say anything of any more.
    """

    place: Place | None
    reached: Mapping[str, int]
    erased: Offsets

    @classmethod
    def of(cls, places: Mapping[str, Place], table: str, erased: Offsets) -> Answered | None:
        """What the rows of a live table were told; None where there is none."""
        if table not in places:
            return None
        reached = log.flows(places[table].path).get(table, {}).get("reached", {})  # read before the answers
        return cls(places.get(lookup_name(table)), reached, erased)

    def files(self, wanted: Mapping[str, Reach]) -> Sequence[str]:
        """The files that may hold answers whose keys lie where they are wanted."""
        if self.place is None:
            return []
        adds = snapshots.adds(self.place.path, log.head(self.place.path))
        return list(pruning.near(self.place.path, adds, wanted)) if len(adds) else []


class Bounds:
    """No bounds: what runs read by. Others say less."""

    def upto(self, table: str, flow: str, stream: str) -> Position | None:
        """How far a flow into a table may read one of its inputs by now; None: as far as that goes.

        Of a view a position is what it reads, and nothing where it is before the first version.
        """
        return None

    def outrun(self, streams: Iterable[str]) -> None:
        """How far inputs go that were to be read up to a version which is kept no more."""

    def wants(self, stream: str, file: str) -> bool:
        """Whether a file of an input has rows that matter."""
        return True

    def references(self, table: str) -> dict[str, str] | None:
        """At which versions a view reads its reference tables by now; None: as they are."""
        return None

    def answered(self, table: str) -> Answered | None:
        """What the rows of a table were told by its lookup that is built again; None: nothing is."""
        return None

    def closed(self, table: str) -> EventTime | None:
        """What of a table is over by now, whatever its rows say; None: the rows, and the clock, say it."""
        return None
