"""How far the flows of a run may read; one that goes on with what comes, as far as there is something."""

from __future__ import annotations

from headwater.planner.event_time import EventTime
from headwater.storage.ranges import Position


class Bounds:
    """No bounds: what runs read by. Others say less."""

    def upto(self, table: str, flow: str, stream: str) -> Position | None:
        """How far a flow into a table may read one of its inputs by now; None: as far as that goes.

        Of a view a position is what it reads, and nothing where it is before the first version.
        """
        return None

    def wants(self, stream: str, file: str) -> bool:
        """Whether a file of an input has rows that matter."""
        return True

    def references(self, table: str) -> dict[str, str] | None:
        """At which versions a view reads its reference tables by now; None: as they are."""
        return None

    def closed(self, table: str) -> EventTime | None:
        """What of a table is over by now, whatever its rows say; None: the rows, and the clock, say it."""
        return None
