"""What a sink was sent: how far, by which keys and to which target; and whether that goes with its table.

The target is asked, where it keeps that by itself; for the others it is kept in the lake.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.connectors.sinks import Position, Published
from headwater.connectors.sinks import Sink as Target
from headwater.errors import FlowError
from headwater.flows import marks
from headwater.project.definitions import Sink
from headwater.storage import log, ranges
from headwater.storage.lake import Lake, Place

NOTHING = Position(0, -1)


class Sent:
    """See above.

    Args:
        lake: the lake.
        sink: the sink's definition.

    Attributes:
        at: what it has; version -1: nothing.
        kept: that, as the lake keeps it: it is told of what brings nothing now and then.
        begun: up to where a batch goes that was begun; a part of it may be there.
    """

    def __init__(self, lake: Lake, sink: Sink) -> None:
        self._lake, self._sink = lake, sink
        self.at = NOTHING
        self.kept = marks.sent(lake, sink.name)
        self.begun = marks.begun(lake, sink.name)
        self._keys: tuple[str, ...] = ()
        self._identity: str | None = None  # which target it is, of those that have its name

    def open(self, target: Target, table: Published, place: Place) -> None:
        """Open the target, and learn what it has.

        Raises:
            SinkUnavailable: it can't be reached.
            FlowError: what it has does not go with the table, or is not known.
        """
        own = target.open(table)
        self._keys, self._identity = table.keys, target.identity() if own is None else None
        self.at = kept = self.kept.at
        if own is not None and (own != kept or kept.committed is None):
            self.at = own
            if own.generation > place.generation:
                raise self.unknown(f"generation {own.generation} was sent, and an earlier one is live")
        elif self._identity and self.kept.target not in (None, self._identity):  # a new one, empty
            self.begun.clear()
            self.at = NOTHING
        if not target.checks_keys:
            self._check_keys()
        if self.at.version < 0:
            self.at = NOTHING
        else:
            self._check_life(place)
            self.keep(self.at)
        if self.begun.at <= self.at:  # it was killed when all was done
            self.begun.clear()

    def keep(self, at: Position) -> None:
        """Keep what the sink has; from here on maintenance keeps what comes after."""
        self.kept.set(at, keys=[*self._keys], target=self._identity or self.kept.target)

    def unfinished(self, place: Place) -> Place:
        """The generation that was begun, a part of which may be there: it comes to its end before the next.

        Raises:
            FlowError: it was removed, so what the sink has is not known.
        """
        goal = self.begun.at
        if goal <= self.at or goal.generation == place.generation:
            return place
        path = self._lake.at(place.name, goal.generation)
        if not log.exists(path):
            raise self.unknown(f"generation {goal.generation}, a part of which was sent, was removed")
        return replace(place, generation=goal.generation, path=path)

    def goal(self, place: Place) -> Position:
        """The version to send in one change: the newest, or the one that was begun.

        Raises:
            FlowError: the one that was begun is gone, so what the sink has is not known.
        """
        goal = self.begun.at
        if goal > self.at and goal.generation == place.generation and goal.version >= 0:
            if goal.version < log.first(place.path):
                raise self.unknown(f"version {goal.version}, a part of which was sent, is gone")
        else:
            goal = self._begin_newest(place)
        return replace(goal, committed=log.read(place.path, goal.version).committed)

    def is_far(self, at: Position) -> bool:
        """Whether the sink is told of what brings it nothing, so that what comes before may be removed."""
        told = self.kept.at
        return at.generation != self.at.generation or ranges.is_far(_read(at), _read(told))

    def unknown(self, why: str) -> FlowError:
        """The error of a sink of which one can't say what it has."""
        return FlowError(
            f"{self._sink.name}: {why}, so what has to change is not known",
            code="SINK_POSITION_LOST",
            where=self._sink.where,
            hint=self._anew(),
        )

    def _begin_newest(self, place: Place) -> Position:
        while True:  # until it is held, maintenance may forget it
            goal = Position(place.generation, log.head(place.path))
            self.begun.set(goal)
            if goal.version >= log.first(place.path):
                return goal

    def _check_life(self, place: Place) -> None:
        """Check that the table still is the one of which the sink has a version."""
        at = _read(self.at)
        path = self._lake.at(place.name, at.generation)
        is_live = at.generation == place.generation
        if (is_live or log.exists(path)) and not ranges.is_as_read(path, at):
            raise self.unknown(
                f"version {at.version} of {path} was sent, and the table was made anew since, or an older "
                "copy of it was put back"
            )

    def _check_keys(self) -> None:
        """Check that what the sink has was sent by the keys that the table has now."""
        by = self.kept.keys
        is_empty = self.at.version < 0 and not self.begun.is_set()
        if is_empty or by is None or by == self._keys:
            return
        raise FlowError(
            f"{self._sink.name}: its rows were sent by {_said(by)}, and the table has "
            f"{_said(self._keys)} now, so those that are there would stay beside the new ones",
            code="SINK_TARGET_DIFFERS",
            where=self._sink.where,
            hint=self._anew(),
        )

    def _anew(self) -> str:
        """How a person lets the whole table be sent again."""
        return (
            "empty the target (drop a table or an index: one whose rows alone are deleted is not taken for "
            f"empty), remove what says where it is ({self.begun.folder}), and run again"
        )


def _read(at: Position) -> ranges.Position:
    return ranges.Position(at.generation, at.version, committed=at.committed)


def _said(keys: tuple[str, ...]) -> str:
    return f"the keys {', '.join(keys)}" if keys else "no keys"
