"""Bronze → silver → gold: a flow over versions.

The rows that were added to the input since this flow's own last commit go through the function and
become one commit, which records how far the input has been read: the commit is the checkpoint. A flow
is woken by the commits of its input and takes all that is new, within its bounds.
"""

from __future__ import annotations

import time

import pyarrow as pa
from pyspark.sql import DataFrame

from headwater import aggregate, analysis, decode, ranges, stored
from headwater import spark as sessions
from headwater.analysis import QUARANTINE
from headwater.commit import Built, Committer
from headwater.definitions import Table
from headwater.errors import CommitError
from headwater.flows.context import Context, clock
from headwater.flows.reading import interval
from headwater.flows.rows import MALFORMED_RULE, Counts, FewRows, ManyRows, Rows, Work, are_few
from headwater.intent import Intent, IntentFile
from headwater.lake import Place
from headwater.progress import Batch
from headwater.ranges import Position, Range
from headwater.target import Target


def quarantine_name(table: str) -> str:
    """The name of a table's quarantine: `quarantine.<layer>_<name>`."""
    return f"quarantine.{table.replace('.', '_')}"


class DerivedFlow:
    """The flow of one table that is derived from another."""

    def __init__(self, context: Context, table: Table) -> None:
        self.name = table.name
        self._context = context
        self._definition = table
        self._analysed = context.tables[table.name]
        self._stream = next(s for s in table.sources if s not in context.project.references)
        self._columns = context.tables[self._stream].columns
        decoder = table.decode
        self._decoded = decode.fields(decoder, f"{table.file}: {table.name}") if decoder else None
        conf = context.project.conf
        self._parallelism = table.limits.parallelism or conf.parallelism
        self._apart = interval(table.limits.trigger) / 1000 if table.limits.trigger else 0.0
        self._max_rows = table.limits.max_rows_per_batch or conf.max_rows_per_batch
        self._spark = sessions.child(context.spark, parallelism=self._parallelism)
        properties = dict(table.properties)
        if self._analysed.keys:
            properties["delta.enableChangeDataFeed"] = "true"
        self._place = context.lake.create(
            table.name, self._analysed.stored, comment=table.comment, properties=properties
        )
        self._table = Target(self._place)
        self._table.require(self._analysed.stored, table.file)
        self.committer = Committer(
            self._table,
            IntentFile(context.lake.flow_folder(table.name)),
            aggregate=self._analysed.aggregate,
            open_target=self._open_quarantine,
        )
        self._position = self._consumed()
        self._references: dict[tuple[str, str], DataFrame] = {}
        self._counts, self._written = Counts(), 0  # of the last batch

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the input has ended and is drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        heads = self._context.heads
        left = self.committer.unsealed()
        if left is not None:
            self._carry_out(left)
        while not self._context.stop.is_set():
            beat, ended, began = heads.beat(), heads.ended(self._stream), time.monotonic()
            if self.step():
                if not self._context.once:
                    self._context.stop.wait(began + self._apart - time.monotonic())
                continue
            if self._context.once and ended:
                return
            heads.wait(beat)

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
            sequence=self._table.flows.get(self.name, {"sequence": -1})["sequence"] + 1,
            consumed={self._stream: found.upto.json()},
            clock=clock(),
            fingerprint=self._analysed.fingerprint,
            files=list(found.files),
            rows=found.rows,
            newest=found.newest,
            references=self._pinnable(),
        )

    def _pinnable(self) -> dict[str, str]:
        """The version of each reference table, read before it is pinned.

        A pinned batch is done again from what it pinned: a broken file must not get that far, or mending
        it would not help.
        """
        references = self._context.project.references
        found = {
            name: references[name].version(self._context.lake.root)
            for name in self._definition.sources
            if name in references
        }
        for name, version in found.items():
            self._reference(name, version)
        return found

    def _carry_out(self, intent: Intent) -> None:
        began = time.monotonic()
        self._counts, self._written = Counts(), 0
        version = self.committer.carry_out(intent, self._build)
        self._position = self._consumed()
        self._context.heads.announce()
        seconds = time.monotonic() - began
        counts, tally = self._counts, self._counts.tally
        self._context.board.batch(
            Batch(
                flow=self.name,
                sequence=intent.sequence,
                version=version,
                rows_in=counts.taken,
                rows_out=self._written,
                quarantined=counts.malformed + tally.quarantined,
                seconds=seconds,
                at=time.time(),
                newest=intent.newest,
                dropped=tally.dropped,
                failed={**({MALFORMED_RULE: counts.malformed} if counts.malformed else {}), **tally.failed},
            )
        )

    def _build(self, intent: Intent) -> Built:
        rows = self._read(intent)
        if self._analysed.aggregate is not None:
            where = f"{self._definition.file}: {self.name}"
            merged = aggregate.partial(rows.result, where).toArrow().cast(self._analysed.stored)
            self._counts, self._written = rows.counts(), len(merged)
            return Built({}, merged)
        files = self._write(self._table, rows.passed(), intent)
        counts, written = rows.counts(), self._table.rows(files)
        self._counts, self._written = counts, written
        tally = counts.tally
        if self._analysed.gate is not None:
            self._analysed.gate.enforce(tally, intent.sequence)
            self._same(intent, tally.rows, written + tally.dropped + tally.quarantined, "accounted for")
        held = counts.malformed + tally.quarantined
        if not held:
            return Built({self.name: files})
        name = quarantine_name(self.name)
        quarantine = self.committer.target(name)
        rejects = self._write(quarantine, rows.held(intent.clock), intent)
        self._same(intent, held, quarantine.rows(rejects), f"found again in {self._stream}")
        return Built({name: rejects, self.name: files})

    def _same(self, intent: Intent, wanted: int, found: int, how: str) -> None:
        if wanted != found:
            raise CommitError(
                f"{self.name}: batch {intent.sequence}: of {wanted} rows {found} are {how}; that is a defect"
            )

    def _read(self, intent: Intent) -> Rows:
        work = Work(
            spark=self._spark,
            columns=self._columns,
            schema=self._decoded,
            function=lambda stream: self._apply(stream, intent),
            gate=self._analysed.gate,
        )
        if are_few(intent.files, intent.rows):
            return FewRows(work, intent.files)
        return ManyRows(work, intent.files, intent.rows)

    def _apply(self, stream: DataFrame, intent: Intent) -> DataFrame:
        frames = [
            self._reference(name, intent.references[name]) if name in intent.references else stream
            for name in self._definition.sources
        ]
        return analysis.apply(self._spark, self._definition, frames)

    def _reference(self, name: str, version: str) -> DataFrame:
        """A reference table's rows, read once per version."""
        if (name, version) not in self._references:
            reference = self._context.project.references[name]
            rows = reference.read(self._spark, self._context.lake.root, version)
            self._references = {key: kept for key, kept in self._references.items() if key[0] != name}
            self._references[name, version] = rows
        return self._references[name, version]

    def _write(self, target: Target, rows: DataFrame | pa.Table, intent: Intent) -> list[str]:
        files = target.write(rows, intent.sequence)
        target.sweep(intent.sequence, files)
        return files

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
        columns = stored.schema(QUARANTINE)
        target = Target(self._context.lake.create(name, columns, comment=comment, properties={}))
        target.require(columns, self._definition.file)
        return target
