"""Bronze → silver → gold: a flow over versions.

The rows that were added to the input since this flow's own last commit go through the function and
become one commit, which records how far the input has been read: the commit is the checkpoint. A flow
is woken by the commits of its input and takes all that is new, within its bounds.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from headwater import aggregate, log, ranges, requests, stored
from headwater.commit import Built, Committer
from headwater.definitions import Table
from headwater.errors import CommitError, HeadwaterError, describe
from headwater.flows import bisect
from headwater.flows.applied import Applied
from headwater.flows.context import Context, clock
from headwater.flows.reading import interval
from headwater.flows.replay import Replay
from headwater.flows.rows import NONE_BROKEN, Counts, FewRows, ManyRows, Rows, are_few, read
from headwater.flows.turns import take_turns
from headwater.intent import Intent, IntentFile
from headwater.lake import Place
from headwater.progress import Batch
from headwater.quality.measure import Findings, Shares
from headwater.quarantine import HELD, quarantine_name
from headwater.ranges import Position, Range
from headwater.requests import Answer, Request
from headwater.target import Identity, Target


class DerivedFlow:
    """The flow of one table that is derived from another."""

    def __init__(self, context: Context, table: Table) -> None:
        self.name = table.name
        self._context = context
        self._definition = table
        self._applied = Applied(context, table)
        self._analysed = self._applied.analysed
        self._stream = self._applied.stream
        self._apart = interval(table.limits.trigger) / 1000 if table.limits.trigger else 0.0
        self._max_rows = table.limits.max_rows_per_batch or context.project.conf.max_rows_per_batch
        self._folder = context.lake.flow_folder(table.name)
        self._table = context.open(table)
        self._place = self._table.place
        self.committer = Committer(
            self._table,
            IntentFile(self._folder),
            merge=self._merge,
            open_target=self._open_quarantine,
        )
        self._position = self._consumed()
        self._counts, self._written, self._findings = Counts(), 0, Findings()  # of the last batch
        self._replay = Replay(context, self._applied, self._table) if table.decode else None

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the input has ended and is drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        self.recover()
        take_turns(self._context, self.name, [self._stream], self._turn, self._apart)

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: the quarantine is of an earlier life of the table.
        """
        left = self.committer.unsealed()
        self._same_life(left)
        if left is not None:
            self._carry_out(left)
        if self._replay is not None:
            self._replay.recover()

    def _same_life(self, left: Intent | None) -> None:
        """Check that the quarantine is no further than the table, or the batch that is half committed."""
        mine = self._table.last(self.name)
        place = self._context.lake.places().get(quarantine_name(self.name))
        held = log.last(log.flows(place.path), self.name) if place else -1
        if place is not None and held > max(mine, left.sequence if left else -1):
            folders = f"{place.path.parent} and {place.path.parent}__resolved"
            raise CommitError(
                f"{self.name}: {place.name} is of an earlier life of it; remove {folders} too: what is to be "
                "held back still will be again, from bronze"
            )

    def resolve(self, request: Request) -> Answer:
        """Do what is asked for with the open records of the quarantine."""
        if self._replay is None:
            return {"error": f"{self.name} decodes no raw records, so it has no quarantine"}
        if request.digest != self._context.project.digest:
            return {
                "error": f"{self._context.project.root}: definitions or suites have changed since process "
                f"{os.getpid()}, which writes {self.name}, was started; start that one again, then ask again"
            }
        try:
            return {"done": asdict(self._replay(request))}
        except HeadwaterError as e:
            return {"error": str(e)}
        except Exception as e:  # what it means for the flow, its own next batch tells
            return {"error": f"{self._definition.file}: {describe(e)}"}

    def _turn(self) -> bool:
        """Do what other processes ask for, then one batch; whether there was one."""
        for request, answer in requests.take(self._folder):
            requests.reply(answer, self.resolve(request))
            if self._replay is not None:
                self._replay.recover()  # one that failed between its two commits
        return self.step()

    def step(self) -> bool:
        """Take one batch; whether there was anything to take."""
        source = self._input()
        if source is None:
            return False
        found = ranges.take(
            source.path,
            self._stream,
            self._position,
            max_rows=self._max_rows,
            max_bytes=self._context.project.conf.max_bytes_per_batch,
        )
        if found is None:
            return False
        if found.files:
            self._carry_out(self._intent(found))
        self._position = found.upto
        return True

    def _intent(self, found: Range) -> Intent:
        return Intent(
            flow=self.name,
            generation=self._place.generation,
            sequence=self._table.last(self.name) + 1,
            consumed={self._stream: found.upto.json()},
            clock=clock(),
            fingerprint=self._analysed.fingerprint,
            files=list(found.files),
            rows=found.rows,
            newest=found.newest,
            references=self._applied.references.pinnable(),
        )

    def _carry_out(self, intent: Intent) -> None:
        began = time.monotonic()
        self._counts, self._written, self._findings = Counts(), 0, Findings()
        version = self.committer.carry_out(intent, self._build)
        self._position = self._consumed()
        self._context.heads.announce()
        seconds = time.monotonic() - began
        counts = self._counts
        self._context.board.batch(
            Batch(
                flow=self.name,
                sequence=intent.sequence,
                version=version,
                rows_in=counts.taken,
                rows_out=self._written,
                quarantined=counts.held,
                seconds=seconds,
                at=time.time(),
                newest=intent.newest,
                dropped=counts.tally.dropped,
                failed=counts.failed,
                missed=self._findings.missed,
            )
        )

    def _build(self, intent: Intent) -> Built:
        if self._analysed.aggregate is not None:
            return self._merged(intent)
        try:
            rows, files = self._passed(intent, NONE_BROKEN)
        except Exception as e:
            rows, files = self._passed(intent, self._broken(intent, e))
        counts, written = rows.counts(), self._table.rows(files)
        self._counts, self._written = counts, written
        tally, gate = counts.tally, self._analysed.gate
        self._findings = Findings()
        if gate is not None:
            self._findings = gate.findings(tally, self._shares(), intent.clock)
            gate.enforce(tally, self._findings, intent.sequence)
            self._same(intent, tally.rows, written + tally.dropped + tally.quarantined, "accounted for")
        shares = self._findings.shares
        if not counts.held:
            return Built({self.name: files}, shares=shares)
        name = quarantine_name(self.name)
        quarantine = self.committer.target(name)
        rejects = quarantine.write(rows.held(intent.clock), intent.batch)
        self._same(intent, counts.held, quarantine.rows(rejects), f"found again in {self._stream}")
        return Built({name: rejects, self.name: files}, shares=shares)

    def _merge(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        assert self._analysed.aggregate is not None
        return table.merge(rows, self._analysed.aggregate, identity)

    def _shares(self) -> Shares:
        """What the windows of the suite's shares held after the last batch."""
        return dict(self._table.flows.get(self.name, {}).get("shares", {}))

    def _merged(self, intent: Intent) -> Built:
        rows = self._read(intent, NONE_BROKEN)
        where = f"{self._definition.file}: {self.name}"
        merged = aggregate.partial(rows.result, where).toArrow().cast(self._analysed.stored)
        self._counts, self._written = rows.counts(), len(merged)
        return Built({}, merged)

    def _passed(self, intent: Intent, broken: pa.Table) -> tuple[Rows, list[str]]:
        """The batch without these records, and the files of its rows that pass."""
        rows = self._read(intent, broken)
        return rows, self._table.write(rows.passed(), intent.batch)

    def _broken(self, intent: Intent, error: Exception) -> pa.Table:
        """The records because of which the batch failed.

        Raises:
            Exception: `error` itself, where it is not for the table to look for them.
        """
        final = isinstance(error, HeadwaterError | Py4JNetworkError) or self._context.stop.is_set()
        if final or self._definition.on_error == "stop" or self._definition.decode is None:
            raise error
        work = self._applied.work(intent.references, self._table)
        parts = bisect.parts(intent.files, work.columns)
        return bisect.broken(work, parts, error, self._context.stop)

    def _same(self, intent: Intent, wanted: int, found: int, how: str) -> None:
        if wanted != found:
            raise CommitError(
                f"{self.name}: batch {intent.sequence}: of {wanted} rows {found} are {how}; that is a defect"
            )

    def _read(self, intent: Intent, broken: pa.Table) -> Rows:
        work = self._applied.work(intent.references, self._table)
        if are_few(intent.files, intent.rows):
            return FewRows(work, read(intent.files, work.columns), broken)
        return ManyRows(work, intent.files, intent.rows, broken)

    def _input(self) -> Place | None:
        return self._context.lake.places().get(self._stream)

    def _consumed(self) -> Position:
        """How far the table's own last commit says that the input was read."""
        mine = self._table.flows.get(self.name)
        if mine is None:
            return Position(generation=1)
        return Position.parse(mine["consumed"][self._stream])

    def _open_quarantine(self, name: str) -> Target:
        comment = f"Rows that {self.name} could not take, as they came, with the reason"
        columns = stored.schema(HELD)
        target = Target(self._context.lake.create(name, columns, comment=comment, properties={}))
        target.require(columns, self._definition.file)
        return target
