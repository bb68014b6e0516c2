"""A table's new versions → a sink outside the lake, in their order, each batch of several versions.

Of a table whose rows change in place its change feed is read, of any other the files that were added. A sink
that keeps by itself which version it has is asked; for the others the position is kept here, after the sink
has the rows: a kill between the two sends them again.

What is sent is written down before it is begun, unless it is there whole or not at all: where it is broken
off, it comes again by the same versions (a sink may know a row without keys by its version and its number in
that), before what another generation has instead.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from headwater.connectors.sinks import Changes, Pieces, Position, Published
from headwater.connectors.sinks import Sink as Target
from headwater.errors import CommitError, FlowError
from headwater.flows import marks, unsent
from headwater.flows.context import Context
from headwater.flows.reporting import Reporting
from headwater.flows.targets import made
from headwater.flows.turns import take_turns
from headwater.project.definitions import Sink
from headwater.storage import log, ranges
from headwater.storage.delta import files
from headwater.storage.lake import Place

MOST = 50_000  # changes of one batch, unless one version alone has more


class PublishFlow:
    """The flow of one sink."""

    def __init__(self, context: Context, sink: Sink) -> None:
        self.name = sink.name
        self._context = context
        self._sink = sink
        analysed = context.tables[sink.table]
        self._keys = analysed.keys
        names = analysed.columns.fieldNames()
        self._columns = pa.schema([analysed.stored.field(name) for name in names])
        self._kept = marks.sent(context.lake, sink.name)
        self._begun = marks.begun(context.lake, sink.name)
        self._open: Target | None = None
        self._identity: str | None = None  # which target it is, of those that have its name
        self._at = Position(0, -1)
        self._filled = False  # whether the sink has a version of the table

    def run(self) -> None:
        """Send what is new until the run ends; with `once`, until the table has ended and is sent.

        Raises:
            SinkUnavailable: the sink can't be reached; nothing is lost, it is sent again.
            HeadwaterError: what a person has to mend.
        """
        try:
            take_turns(self._context, self.name, [self._sink.table], self._step)
        finally:
            if self._open is not None:
                self._open.close()

    def _step(self) -> bool:
        """Send one batch; whether there was one."""
        place = self._context.lake.places().get(self._sink.table)
        if place is None:
            return False
        if self._open is None:
            self._open = made(self._sink, self._context)
            self._at = self._opened(self._open, place)
            self._check_life(place.name)
            self._check_keys()
            self._filled = self._at.version >= 0
            if self._begun.at <= self._at:  # it was killed when all was done
                self._begun.clear()
        live, place = place, self._unfinished(place)
        if self._at.version < 0:  # nothing was sent yet
            self._at = Position(place.generation, -1)
        with ExitStack() as held:
            if self._at.generation == place.generation:
                changes = self._changes(place, self._at)
            else:
                changes = self._difference(place, self._at, held)
            if changes is None:
                return False
            self._at = self._sent(self._open, changes, place, live)
        return True

    def _sent(self, target: Target, changes: Changes, place: Place, live: Place) -> Position:
        """Send the changes of a generation, perhaps one before that which is live."""
        try:
            return self._send(target, changes)
        except FlowError as e:
            if place == live:
                raise
            raise FlowError(
                f"{e}; it is of generation {place.generation}, which was begun before the one that is live",
                code=e.code,
                table=e.table,
                file=e.file,
                hint=f"to pass it over, empty the target, remove {self._begun.folder}, and run again",
            ) from None

    def _unfinished(self, place: Place) -> Place:
        """The generation that was begun, a part of which may be there: it comes to its end before the next.

        Raises:
            FlowError: it was removed, so what the sink has is not known.
        """
        goal = self._begun.at
        assert self._open is not None
        if goal <= self._at or goal.generation == place.generation or self._open.atomic:
            return place
        path = self._context.lake.at(place.name, goal.generation)
        if not log.exists(path):
            raise self._unknown(f"generation {goal.generation}, a part of which was sent, was removed")
        return replace(place, generation=goal.generation, path=path)

    def _check_life(self, name: str) -> None:
        """Check that the table still is the one of which the sink has a version.

        Raises:
            FlowError: it is not, so what the sink has is not known.
        """
        if self._at.version < 0:
            return
        at = ranges.Position(self._at.generation, self._at.version, committed=self._at.committed)
        path = self._context.lake.at(name, at.generation)
        if log.exists(path) and not ranges.is_as_read(path, at):
            raise self._unknown(
                f"version {at.version} of {path} was sent, and the table was made anew since, or an older "
                "copy of it was put back"
            )

    def _check_keys(self) -> None:
        """Check that what the sink has was sent by the keys that the table has now.

        Raises:
            FlowError: it was sent by others, by which its rows are still known there.
        """
        sent = self._kept.keys
        if sent in (None, self._keys) or (self._at.version < 0 and not self._begun.is_set()):
            return
        assert sent is not None
        raise FlowError(
            f"{self.name}: its rows were sent by {_said(sent)}, and the table has {_said(self._keys)} now, "
            "so those that are there would stay beside the new ones",
            code="SINK_TARGET_DIFFERS",
            where=self._sink.where,
            hint=self._anew(),
        )

    def _unknown(self, why: str) -> FlowError:
        return FlowError(
            f"{self.name}: {why}, so what has to change is not known",
            code="SINK_POSITION_LOST",
            where=self._sink.where,
            hint=self._anew(),
        )

    def _anew(self) -> str:
        """How a person lets the whole table be sent again."""
        return (
            "empty the target (drop a table or an index), remove what says where it is "
            f"({self._begun.folder}), and run again"
        )

    def _opened(self, target: Target, place: Place) -> Position:
        """Where the sink is."""
        table = Published(self.name, place.name, self._columns, self._keys, place.id)
        with self._context.queue.aside():
            own = target.open(table)
            self._identity = target.identity() if own is None else None
        at = kept = self._kept.at
        if own is not None and (own != kept or own.committed is not None):
            at = own
        elif self._identity and self._kept.target not in (None, self._identity):  # a new one, empty
            self._begun.clear()
            at = Position(0, -1)
        return at if at.version >= 0 else Position(0, -1)

    def _changes(self, place: Place, at: Position) -> Changes | None:
        """The next versions, as many as a batch may have; None where there is none.

        Raises:
            FlowError: maintenance has removed them while the sink was no part of the project, or off.
        """
        if at.version < 0:
            self._keep(Position(place.generation, -1))  # from here on maintenance keeps what there is
        if at.version < 0 and log.first(place.path) > 0:
            return self._whole(place)
        try:
            parts = self._next(place, at)
        except CommitError:
            first = log.first(place.path)
            if at.version < 0 < first:  # the log has lost its beginning since it was looked at
                return self._whole(place)
            if at.version < first - 1:
                gone = f"what came after version {at.version}, which was sent last, is gone"
                raise self._unknown(gone) from None
            raise
        return Changes(parts) if parts else None

    def _next(self, place: Place, at: Position) -> list[tuple[Position, Pieces]]:
        """The next versions, each with its changes."""
        parts: list[tuple[Position, Pieces]] = []
        rows = 0
        for commit in log.commits(place.path, after=at.version, upto=log.head(place.path)):
            changed = unsent.of_commit(commit, place.path, self._columns)
            if parts and rows + len(changed) > MOST:
                break
            parts.append((Position(place.generation, commit.version, commit.committed), changed))
            rows += len(changed)
        return parts

    def _whole(self, place: Place) -> Changes:
        """All rows, in one change: the commits that they came with are gone from the log."""
        goal = self._goal(place)
        rows = unsent.whole(files(place.path, goal.version), self._columns)
        return Changes([(goal, rows)])

    def _difference(self, place: Place, at: Position, held: ExitStack) -> Changes:
        """What is other in this generation than in the one that the sink has, in one change.

        Args:
            place: the generation.
            at: what the sink has.
            held: what is open until the change is sent.

        Raises:
            FlowError: that generation was removed, so what the sink has is not known.
        """
        before = self._context.lake.at(place.name, at.generation)
        if not log.exists(before):
            raise self._unknown(f"generation {at.generation}, which was sent last, was removed")
        if at.version < log.first(before):
            raise self._unknown(f"version {at.version} of generation {at.generation}, sent last, is gone")
        goal = self._goal(place)
        old, new = files(before, at.version), files(place.path, goal.version)
        rows = unsent.difference(old, new, self._columns, self._keys, held)
        return Changes([(goal, rows)])

    def _goal(self, place: Place) -> Position:
        """The version to send in one change: the newest, or the one that was begun.

        Raises:
            FlowError: the one that was begun is gone, so what the sink has is not known.
        """
        goal = self._begun.at
        if goal > self._at and goal.generation == place.generation and goal.version >= 0:
            if goal.version < log.first(place.path):
                raise self._unknown(f"version {goal.version}, a part of which was sent, is gone")
        else:
            goal = self._hold_newest(place)
        return replace(goal, committed=log.read(place.path, goal.version).committed)

    def _hold_newest(self, place: Place) -> Position:
        while True:  # until it is held, maintenance may forget it
            goal = Position(place.generation, log.head(place.path))
            self._begun.set(goal)
            if goal.version >= log.first(place.path):
                return goal

    def _send(self, target: Target, changes: Changes) -> Position:
        reporting = Reporting(self._context, self.name)
        if changes.rows or self._is_far(changes.last):
            if not (target.atomic and self._filled) and not self._begun.is_set():
                self._begun.set(changes.last if self._filled else Position(changes.last.generation, -1))
            reporting.watch.lap("pin")
            with self._context.queue.aside():
                target.write(changes)
            reporting.watch.lap("send")
            self._filled = True
            self._keep(changes.last)
            self._begun.clear()
            reporting.watch.lap("seal")
            reporting.sent(self._sink.table, changes)
        return changes.last

    def _is_far(self, at: Position) -> bool:
        """Whether the sink is told of what brings it nothing, so that what comes before may be removed."""
        return at.generation != self._at.generation or at.version - self._kept.at.version >= ranges.UNTOLD

    def _keep(self, at: Position) -> None:
        """Keep what was sent, by which keys, and to what."""
        self._kept.set(at, keys=[*self._keys], target=self._identity or self._kept.target)


def _said(keys: tuple[str, ...]) -> str:
    return f"the keys {', '.join(keys)}" if keys else "no keys"
