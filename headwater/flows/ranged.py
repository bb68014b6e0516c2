"""What flows over versions have in common: ranges of one table's new or changed rows, each of which becomes
one commit.

The rows that were added to the input since this flow's own last commit are one batch; its commit records how
far the input has been read: the commit is the checkpoint. A flow is woken by the commits of its input and
takes all that is new, within its bounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa

from headwater.common.report import Account
from headwater.errors import CommitError, FlowError
from headwater.flows.applied import Applied
from headwater.flows.context import Context
from headwater.flows.parting import parting
from headwater.flows.reporting import Reporting
from headwater.flows.rows import NONE_BROKEN, FewRows, ManyRows, Rows, are_few, read
from headwater.flows.turns import TableFlow
from headwater.flows.work import Counts, Work
from headwater.planner.event_time import EventTime
from headwater.project.definitions import Table
from headwater.quality.measure import Findings
from headwater.storage import log, ranges
from headwater.storage.commit import Built
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Place
from headwater.storage.ranges import Position, Range
from headwater.storage.target import Target


class _Outrun(Exception):  # noqa: N818 (nothing is wrong)
    """Maintenance has removed what a first batch would go on from, before that was pinned."""


class RangedFlow(TableFlow):
    """The flow of one table that is derived from another; a subclass says what a batch becomes.

    Args:
        context: the run.
        table: the definition.
        into: the table, where the definition is of one of several flows into it.
    """

    def __init__(self, context: Context, table: Table, into: Target | None = None) -> None:
        super().__init__(context, table)
        self._definition = table
        self._applied = Applied(context, table)
        self._analysed = self._applied.analysed
        self._stream = self._applied.stream
        self._parting = parting(self._applied.columns)
        self._max_rows = table.limits.max_rows_per_batch or context.project.conf.max_rows_per_batch
        self._table = into or context.open(table)
        self._place = self._table.place
        self._folder = context.lake.flow_folder(table.name, self._place.name)
        self._intents = IntentFile(self._folder)
        self._position = self._consumed()

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: a table beside this one is of an earlier life of it.
        """
        left = self.committer.unsealed()
        for name in self._beside():
            self._same_life(name, left)
        if left is not None:
            source = self._input()
            if source is not None and self._stream in left.consumed:
                self._as_read(source, Position.parse(left.consumed[self._stream]))
            self._carry_out(left)

    def _beside(self) -> list[str]:
        """The tables that the flow writes beside its own, where there is a need."""
        return []

    def _same_life(self, name: str, left: Intent | None) -> None:
        """Check that a table beside is no further than the table, or the batch that is half committed."""
        mine = self._table.last(self.name)
        place = self._context.lake.places().get(name)
        held = log.last(log.flows(place.path), self.name) if place else -1
        if place is not None and held > max(mine, left.sequence if left else -1):
            raise CommitError(
                f"{self.name}: {name} is of an earlier life of it",
                code="TABLE_OF_EARLIER_LIFE",
                table=name,
                hint=f"remove {place.path.parent}* too: what it holds comes again from {self._stream}",
            )

    def step(self) -> bool:
        """Take one batch; whether there was anything to take."""
        source = self._input()
        if source is None or not self._goes_on(source):
            return False
        found = ranges.take(
            source.path,
            self._stream,
            self._position,
            max_rows=self._max_rows,
            max_bytes=self._context.project.conf.max_bytes_per_batch,
            upto=self._context.bounds.upto(self._place.name, self.name, self._stream),
            changes=self._analysed.kind == "changed rows",
            parting=None if self._analysed.kind == "changed rows" else self._parting,
        )
        if found is None:
            return False
        wants = self._context.bounds.wants
        found = replace(found, files=tuple(file for file in found.files if wants(self._stream, file)))
        begins = self._position == Position(source.generation) and log.first(source.path) == 0
        if not found.files or self._carry_out(self._intent(found, self._told(found)), begins=begins):
            self._position = found.upto
        return True

    def _goes_on(self, source: Place) -> bool:
        """Whether the input is the generation that was read; the first that is met is.

        Raises:
            FlowError: it is not the table that was read.
        """
        if self._position == Position(generation=0):
            self._position = Position(source.generation)
        if source.generation != self._position.generation:
            return False
        self._as_read(source, self._position)
        return True

    def _as_read(self, source: Place, at: Position) -> None:
        """Check that the input still is the table that was read up to a position.

        Raises:
            FlowError: it was made anew, or an older copy of it was put back.
        """
        mine = self._place.name
        if source.generation == at.generation and not ranges.is_as_read(source.path, at):
            raise FlowError(
                f"{mine} has read {self._stream} up to version {at.newest}, which is not the same any more: "
                f"{source.path} was made anew, or an older copy of it was put back",
                code="INPUT_REPLACED",
                table=mine,
                file=source.path,
                hint=f"put back what was there, or build what has read it anew: headwater rebuild {mine}",
            )

    def _told(self, found: Range) -> EventTime | None:
        """How far event time comes with a batch; None where that does not matter."""
        return None

    def _intent(self, found: Range, event_time: EventTime | None) -> Intent:
        return Intent(
            flow=self.name,
            generation=self._place.generation,
            sequence=self._table.last(self.name) + 1,
            consumed={self._stream: found.upto.json()},
            clock=self._context.clock(),
            fingerprint=self._analysed.fingerprint,
            files=list(found.files),
            rows=found.rows,
            newest=found.newest,
            references=self._applied.references.pinnable(),
            event_time=event_time.json() if event_time else {},
            prefix="" if self.name == self._place.name else f"{self.name}-",
            size=found.size,
        )

    def _build(self, intent: Intent) -> Built:
        """What the batch becomes."""
        raise NotImplementedError

    def _account(
        self, intent: Intent, counts: Counts, written: int, *, late: int = 0, findings: Findings | None = None
    ) -> Account:
        """What is said of a batch that was built.

        Args:
            intent: the batch.
            counts: what became of its rows.
            written: rows written to the table.
            late: rows that came too late for their window.
            findings: about many rows at once.
        """
        return Account(
            rows_in=counts.taken,
            rows_out=written,
            quarantined=counts.held,
            dropped=counts.tally.dropped,
            late=late,
            failed=counts.failed,
            missed=findings.missed if findings else {},
            rows_read=intent.rows,
            files_read=len(intent.files),
            bytes_read=intent.size,
        )

    def _carry_out(self, intent: Intent, *, begins: bool = False) -> bool:
        """Do a batch; False: it is none, and the next is to be taken from what the input's log has now.

        Args:
            intent: the batch.
            begins: whether it begins where the input's log did.
        """
        reporting = Reporting(self._context, self._place.name)
        first = self._consumed() == Position(generation=0)
        try:
            build = partial(self._build_first, begins=begins) if first else self._build
            done = self.committer.carry_out(intent, build)
        except _Outrun:
            return False
        self._position = self._consumed()
        reporting.committed(intent, done)
        return True

    def _build_first(self, intent: Intent, *, begins: bool) -> Built:
        """What the first batch becomes, which holds what comes after it from when it was pinned on.

        Raises:
            _Outrun: maintenance has removed that before, or is about to.
        """
        source, upto = self._input(), Position.parse(intent.consumed[self._stream])
        if source is not None and log.first(source.path) > (0 if begins else upto.holds + 1):
            raise _Outrun
        return self._build(intent)

    def _read(self, intent: Intent, broken: pa.Table = NONE_BROKEN) -> Rows:
        work = self._work(intent)
        if are_few(intent.files, intent.rows):
            return FewRows(work, read(intent.files, work.columns), broken)
        return ManyRows(work, intent.files, intent.rows, broken)

    def _work(self, intent: Intent) -> Work:
        return self._applied.work(intent.references, self._table)

    def _input(self) -> Place | None:
        return self._context.lake.places().get(self._stream)

    def _consumed(self) -> Position:
        """How far the table's own last commit says that the input was read."""
        mine = self._table.flows.get(self.name)
        if mine is None:
            return Position(generation=0)
        return Position.parse(mine["consumed"][self._stream])
