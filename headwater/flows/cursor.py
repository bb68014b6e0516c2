"""How far a flow has read one of its inputs, version by version, and what it takes of it next."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headwater.errors import CommitError, FlowError
from headwater.flows.context import Context
from headwater.flows.parting import parting
from headwater.storage import log, ranges
from headwater.storage.lake import Place
from headwater.storage.ranges import Position, Range


class Cursor:
    """One input of a flow.

    Args:
        context: the run.
        flow: the flow.
        into: the table that it feeds.
        name: the input.
        position: how far the flow's last commit says that it was read.
        changes: whether its change feed is read, and not its rows.
        ordered: whether it matters that of one partition of Kafka no records come before older ones.
        once: whether nothing is read but what the input has when rows are first found in it.

    Attributes:
        name: the input.
        columns: those of the input.
        position: how far it has been read; behind commits that add nothing that is further than the flow's
            last commit says.
    """

    def __init__(
        self,
        context: Context,
        flow: str,
        into: str,
        name: str,
        position: Position,
        *,
        changes: bool,
        ordered: bool,
        once: bool = False,
    ) -> None:
        self._context, self._flow, self._into = context, flow, into
        self.name, self.position = name, position
        self.columns = context.tables[name].columns
        self._changes, self._once = changes, once
        self._parting = parting(self.columns) if ordered and not changes else None

    def place(self) -> Place | None:
        """Where the input lies; None where it is not there yet."""
        return self._context.lake.places().get(self.name)

    def goes_on(self) -> Place | None:
        """Where the input lies, if it is the generation that was read; the first that is met is.

        Raises:
            FlowError: it is not the table that was read.
        """
        place = self.place()
        if place is None:
            return None
        if self.position == Position(generation=0):
            self.position = Position(place.generation)
        if place.generation != self.position.generation:
            return None
        self.check(self.position)
        return place

    def check(self, at: Position) -> None:
        """Check that the input still is the table that was read up to a position.

        Raises:
            FlowError: it was made anew, or an older copy of it was put back.
        """
        place = self.place()
        if place is None or at.is_over:
            return
        if place.generation != at.generation or ranges.is_as_read(place.path, at):
            return
        raise FlowError(
            f"{self._into} has read {self.name} up to version {at.newest}, which is not the same any more: "
            f"{place.path} was made anew, or an older copy of it was put back",
            code="INPUT_REPLACED",
            table=self._into,
            file=place.path,
            hint=f"put back what was there, or build what has read it anew: headwater rebuild {self._into}",
        )

    def take(self, place: Place, max_rows: int, max_bytes: int) -> Range:
        """What comes next, within the bounds of the run: at least one file, and then at most so many rows and
        bytes; no file, and the same position, where nothing does.

        Raises:
            FlowError: a commit took rows away.
            CommitError: the log was cleaned past the position.
        """
        bounds, last = self._context.bounds, self._last(place)
        ask = partial(
            ranges.take,
            place.path,
            self.name,
            self.position,
            max_rows=max_rows,
            max_bytes=max_bytes,
            upto=_first(bounds.upto(self._into, self._flow, self.name), last),
            changes=self._changes,
            parting=self._parting,
        )
        try:
            found = ask()
        except CommitError:
            if self.position != Position(place.generation) or log.first(place.path) == 0:
                raise
            found = ask()  # the log's beginning has gone since it was looked at: a snapshot stands for it
        if found is None:
            return self.nothing()
        if last is not None and (found.files or self.position.until is not None):
            found = replace(found, upto=replace(found.upto, until=last.version))
        return replace(found, files=tuple(file for file in found.files if bounds.wants(self.name, file)))

    def _last(self, place: Place) -> Position | None:
        """Behind which nothing is read; None: all that comes is."""
        if not self._once:
            return None
        known = self.position.until
        return Position(place.generation, log.head(place.path) if known is None else known)

    def nothing(self) -> Range:
        """No files, and the same position."""
        return Range((), 0, self.position, None)

    def begins(self, place: Place) -> bool:
        """Whether the next range begins where the input's log does."""
        return self.position == Position(place.generation) and log.first(place.path) == 0

    def is_outrun(self, upto: Position, *, begins: bool) -> bool:
        """Whether maintenance has removed what who has read a first range has to go on from, or is about to.

        Args:
            upto: the position after the range.
            begins: whether it began where the input's log did.
        """
        place = self.place()
        if place is None or upto == Position(upto.generation):
            return False
        return log.first(place.path) > (0 if begins else upto.holds + 1)


def _first(one: Position | None, other: Position | None) -> Position | None:
    """The position that comes before the other; None: both are without bounds."""
    if one is None or other is None:
        return one or other
    return other if one.reaches(other) else one
