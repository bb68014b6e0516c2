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

import pyarrow as pa

from headwater.connectors.sinks import Changes, Pieces, Position, Published
from headwater.connectors.sinks import Sink as Target
from headwater.errors import CommitError, FlowError
from headwater.flows import unsent
from headwater.flows.context import Context
from headwater.flows.reporting import Reporting
from headwater.flows.sent import Sent
from headwater.flows.targets import made
from headwater.flows.turns import take_turns
from headwater.planner.changes import follow
from headwater.project.definitions import Sink
from headwater.storage import log
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
        self._sent = Sent(context.lake, sink)
        self._open: Target | None = None
        self._live = 0  # the generation that was the live one last; 0: not known
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
        known = self._live or self._context.opened.get(place.name, place.generation)
        if place.generation != known:
            follow(self._context.project, self._context.lake, place.name)
        self._live = place.generation
        if self._open is None:
            self._open = made(self._sink, self._context)
            table = Published(self.name, place.name, self._columns, self._keys, place.id)
            with self._context.queue.aside():
                self._sent.open(self._open, table, place)
            self._filled = self._sent.at.version >= 0
        live, place = place, place if self._open.atomic else self._sent.unfinished(place)
        if self._sent.at.version < 0:  # nothing was sent yet
            self._sent.at = Position(place.generation, -1)
        with ExitStack() as held:
            if self._sent.at.generation == place.generation:
                changes = self._changes(place, self._sent.at)
            else:
                changes = self._difference(place, self._sent.at, held)
            if changes is None:
                return False
            self._sent.at = self._send_generation(self._open, changes, place, live)
        return True

    def _send_generation(self, target: Target, changes: Changes, place: Place, live: Place) -> Position:
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
                hint=f"to pass it over, empty the target, remove {self._sent.begun.folder}, and run again",
            ) from None

    def _changes(self, place: Place, at: Position) -> Changes | None:
        """The next versions, as many as a batch may have; None where there is none.

        Raises:
            FlowError: maintenance has removed them while the sink was no part of the project, or off.
        """
        if at.version < 0:
            self._sent.keep(Position(place.generation, -1))
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
                raise self._sent.unknown(gone) from None
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
        goal = self._sent.goal(place)
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
            raise self._sent.unknown(f"generation {at.generation}, which was sent last, was removed")
        if at.version < log.first(before):
            raise self._sent.unknown(
                f"version {at.version} of generation {at.generation}, sent last, is gone"
            )
        goal = self._sent.goal(place)
        old, new = files(before, at.version), files(place.path, goal.version)
        rows = unsent.difference(old, new, self._columns, self._keys, held)
        return Changes([(goal, rows)])

    def _send(self, target: Target, changes: Changes) -> Position:
        reporting = Reporting(self._context, self.name)
        if changes.rows or self._sent.is_far(changes.last):
            if not (target.atomic and self._filled) and not self._sent.begun.is_set():
                self._sent.begun.set(changes.last if self._filled else Position(changes.last.generation, -1))
            reporting.watch.lap("pin")
            with self._context.queue.aside():
                target.write(changes)
            reporting.watch.lap("send")
            self._filled = True
            self._sent.keep(changes.last)
            self._sent.begun.clear()
            reporting.watch.lap("seal")
            reporting.sent(self._sink.table, changes)
        return changes.last
