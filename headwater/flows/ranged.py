"""What flows over versions have in common: ranges of their inputs' rows, each of which becomes one commit.

The rows that were added to the inputs, or changed, since this flow's own last commit are one batch; its
commit records how far each input has been read: the commit is the checkpoint. A flow is woken by the commits
of its inputs and takes all that is new, within its bounds. All but a process over several streams have one
input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import pyarrow as pa

from headwater.common.report import Account
from headwater.errors import CommitError
from headwater.flows.applied import Applied
from headwater.flows.context import Context
from headwater.flows.cursor import Cursor
from headwater.flows.few import Refused
from headwater.flows.references import Outrun
from headwater.flows.reporting import Reporting
from headwater.flows.rows import NONE_BROKEN, FewRows, ManyRows, Rows, are_few, can_be_held, read
from headwater.flows.turns import TableFlow
from headwater.flows.work import Counts, Work
from headwater.planner.event_time import EventTime
from headwater.project.definitions import Table
from headwater.quality.measure import Findings
from headwater.storage import log, stored
from headwater.storage.commit import Built
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Place
from headwater.storage.ranges import Position, Range, is_far
from headwater.storage.target import Target

Ranges = Mapping[str, Range]  # of each input, by its name


class RangedFlow(TableFlow):
    """The flow of one table that is derived from others; a subclass says what a batch becomes.

    Args:
        context: the run.
        table: the definition.
        into: the table, where the definition is of one of several flows into it.
    """

    _carried: bool | None = False  # whether DuckDB computes batches of many rows; None: not known yet

    def __init__(self, context: Context, table: Table, into: Target | None = None) -> None:
        super().__init__(context, table)
        self._definition = table
        self._applied = Applied(context, table)
        self._analysed = self._applied.analysed
        self._stream = self._applied.stream
        self._max_rows = table.limits.max_rows_per_batch or context.project.conf.max_rows_per_batch
        self._table = into or context.open(table)
        self._place = self._table.place
        self._folder = context.lake.flow_folder(table.name, self._place.name)
        self._intents = IntentFile(self._folder)
        changes, ordered = self._analysed.kind == "changed rows", self._analysed.ordered
        self._cursors = {
            each: Cursor(
                context,
                self.name,
                self._place.name,
                each,
                position,
                changes=changes,
                ordered=ordered,
                once=table.once,
            )
            for each, position in self._consumed().items()
        }

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: a table beside this one is of an earlier life of it.
        """
        left = self.committer.left(self._analysed.fingerprint)
        for name in self._beside():
            self._same_life(name, left)
        if left is not None:
            for each in self._cursors.keys() & left.consumed.keys():
                self._cursors[each].check(Position.parse(left.consumed[each]))
            self._carry_out(left, left=True)

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
                hint=f"put both back from one copy, or make both anew: headwater rebuild {self._place.name}",
            )

    def step(self) -> bool:
        """Take one batch; whether there was anything to take."""
        places = self._places()
        if places is None:
            return False
        found = self._take(places)
        if all(found[each].upto == cursor.position for each, cursor in self._cursors.items()):
            return False
        begins = [each for each, cursor in self._cursors.items() if cursor.begins(places[each])]
        passed = not any(each.files for each in found.values()) and not self._is_far(found)
        if passed or self._carry_out(self._intent(found, self._told(found)), begins=begins):
            for each, cursor in self._cursors.items():
                cursor.position = found[each].upto
        return True

    def _is_far(self, found: Ranges) -> bool:
        """Whether a batch tells how far the inputs are read, although it has no rows."""
        told = self._consumed()
        return any(is_far(each.upto, told[name]) for name, each in found.items())

    def _places(self) -> dict[str, Place] | None:
        """Where the inputs lie; None where one of them is not there, or is another generation."""
        places = {each: cursor.goes_on() for each, cursor in self._cursors.items()}
        there = {each: place for each, place in places.items() if place is not None}
        return there if len(there) == len(places) else None

    def _take(self, places: Mapping[str, Place]) -> dict[str, Range]:
        """What comes next of each input, together within the bounds of a batch."""
        rows, size = self._max_rows, self._context.project.conf.max_bytes_per_batch
        found: dict[str, Range] = {}
        for cursor in self._in_turn():
            taken = cursor.take(places[cursor.name], rows, size)
            if (taken.rows > rows or taken.size > size) and any(each.files for each in found.values()):
                taken = cursor.nothing()  # a file that is too large is taken alone
            found[cursor.name] = taken
            rows, size = rows - taken.rows, size - taken.size
        return found

    def _in_turn(self) -> Sequence[Cursor]:
        """The inputs, those first that have precedence in the next batch."""
        return [*self._cursors.values()]

    def _told(self, found: Ranges) -> EventTime | None:
        """How far event time comes with a batch; None where that does not matter."""
        return None

    def _intent(self, found: Ranges, event_time: EventTime | None) -> Intent:
        files = {each: [*found[each].files] for each in self._cursors}
        newest = [each.newest for each in found.values() if each.newest is not None]
        return Intent(
            flow=self.name,
            generation=self._place.generation,
            sequence=self._table.last(self.name) + 1,
            consumed={each: found[each].upto.json() for each in self._cursors},
            clock=self._context.clock(),
            fingerprint=self._analysed.fingerprint,
            files=[file for of_input in files.values() for file in of_input],
            inputs=files if len(files) > 1 else {},
            rows=sum(each.rows for each in found.values()),
            newest=max(newest, default=None),
            references=self._applied.references.pinnable(),
            event_time=event_time.json() if event_time else {},
            prefix="" if self.name == self._place.name else f"{self.name}-",
            size=sum(each.size for each in found.values()),
        )

    def _files(self, intent: Intent) -> Mapping[str, list[str]]:
        """{input → the files of it that a batch reads}."""
        return intent.inputs or {self._stream: intent.files}

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

    def _carry_out(self, intent: Intent, *, begins: Collection[str] = (), left: bool = False) -> bool:
        """Do a batch; False: it is none, and the next is to be taken from what the inputs' logs have now.

        Args:
            intent: the batch.
            begins: the inputs of which it begins where their logs did.
            left: whether a killed process has pinned it.
        """
        reporting = Reporting(self._context, self._place.name)
        try:
            done = self.committer.carry_out(intent, partial(self._build_pinned, begins=begins, left=left))
        except Outrun:
            return False
        for each, position in self._consumed().items():
            self._cursors[each].position = position
        reporting.committed(intent, done)
        return True

    def _build_pinned(self, intent: Intent, *, begins: Collection[str], left: bool) -> Built:
        """What a batch becomes, which holds what it reads once it is pinned; the first one of an input, what
        comes after it too.

        Raises:
            Outrun: maintenance has removed some of that before, or is about to.
        """
        for each, at in self._consumed().items():
            upto = Position.parse(intent.consumed[each])
            if at == Position(generation=0) and self._cursors[each].is_outrun(upto, begins=each in begins):
                raise Outrun
        if not left:
            self._applied.references.check(intent.references)
        return self._built(intent)

    def _read(self, intent: Intent, broken: pa.Table = NONE_BROKEN) -> Rows:
        work = self._work(intent)
        many = self._is_held(intent)
        if many or are_few(intent.files, intent.rows):
            return FewRows(work, read(intent.files, work.columns), broken, many=many)
        return ManyRows(work, intent.files, intent.rows, broken)

    def _is_held(self, intent: Intent) -> bool:
        """Whether a batch has many rows, and they pass through this process."""
        if self._carried is False or are_few(intent.files, intent.rows):
            return False
        if self._carried is None:
            work = self._work(intent)
            self._carried = FewRows(work, stored.schema(work.columns).empty_table()).is_carried
        return self._carried and can_be_held(intent.files, intent.rows)

    def _built(self, intent: Intent) -> Built:
        """What a batch becomes: of many rows when there is room, and by Spark if DuckDB refuses them."""
        if not self._is_held(intent):
            return self._build(intent)
        try:
            with self._context.room:
                return self._build(intent)
        except Refused as refused:
            always = refused.always  # what it was raised over holds the rows, which go with it here
        before, self._carried = self._carried, False
        try:
            return self._build(intent)
        finally:
            self._carried = before and not always

    def _work(self, intent: Intent) -> Work:
        return self._applied.work(intent.references, self._table)

    def _consumed(self) -> dict[str, Position]:
        """How far the table's own last commit says that each input was read."""
        read = self._table.flows.get(self.name, {}).get("consumed", {})
        never = Position(generation=0)
        return {each: Position.parse(read[each]) if each in read else never for each in self._inputs}
