"""Files → a bronze table: the batches of a flow, each of them one commit of rows and of the ledger of files.

1. **Look**: which files the pattern names, and which of them the ledger knows (`landing.source`,
   `landing.ledger`).
2. **Read** the next of them, within the batch's bounds. A file that does not end in the batch in which it
   begins is first read to its end: of one that is damaged nothing is taken.
3. **Commit** the ledger and the table, as any batch with two targets: see `storage.commit`. So a file is in
   the table once, whatever is killed: what was not staged is read again, what was staged is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from headwater.common import times
from headwater.common.report import Account, Stopwatch
from headwater.connectors.files.batch import Batch
from headwater.connectors.files.file import Brought, File
from headwater.connectors.files.formats import UNREADABLE
from headwater.connectors.files.ledger import LINES, Ledger, Seen
from headwater.connectors.files.reading import Reading
from headwater.connectors.files.source import Source
from headwater.errors import CommitError, StoreUnavailable
from headwater.project.definitions import Format
from headwater.storage import log
from headwater.storage.commit import Built, Committed, Committer
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.names import FILES, ledger_name
from headwater.storage.target import Target


@dataclass(frozen=True)
class Bounds:
    """What a batch has at most: rows, and bytes of their values."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Taken:
    """A batch of files that is in the table.

    Attributes:
        batch: what was taken.
        intent: what was pinned of it.
        done: what became of it; the first of its phases is `read`.
    """

    batch: Batch
    intent: Intent
    done: Committed


class Intake:
    """Takes files into one bronze table, by one flow.

    Args:
        flow: the flow's name.
        topic: what its rows have as topic.
        table: the table, open for writing.
        lake: where its ledger lies.
        bounds: of a batch.
        fingerprint: the definition's.
        now: says what time it is, in UTC.

    Attributes:
        left: {file that was seen, and not taken to its end, for another look to see anew → why}.
    """

    def __init__(
        self,
        flow: str,
        topic: str,
        table: Target,
        lake: Lake,
        bounds: Bounds,
        fingerprint: str,
        now: Callable[[], datetime] = times.now,
    ) -> None:
        self._flow, self._topic, self._table = flow, topic, table
        self._lake, self._bounds, self._fingerprint, self._now = lake, bounds, fingerprint, now
        folder = lake.flow_folder(flow, table.place.name)
        self.committer = Committer(table, IntentFile(folder), open_target=self._open)
        self._incoming = folder / "incoming"
        self._ledger: Ledger | None = None
        self._source: Source | None = None
        self._partition = 0
        self._format: Format = "json"
        self._tried: set[File] = set()  # unreadable ones
        self._todo: Brought | None = None
        self._changed: list[tuple[File, str]] = []
        self.left: dict[str, str] = {}
        self._reading: Reading | None = None

    def recover(self) -> None:
        """Commit what a killed process had staged; what it had not is read again.

        Raises:
            CommitError: the ledger is of another life of the table, so what was taken is not known.
        """
        self.committer.finish()
        name, place = ledger_name(self._table.place.name), self._table.place
        ledger = self._lake.places().get(name)
        mine, noted = self._table.last(self._flow), -1
        if ledger is not None and log.exists(ledger.path):
            noted = log.last(log.flows(ledger.path), self._flow)
        if mine != noted:
            folder = self._lake.at(name, 1).parent
            raise CommitError(
                f"{place.name}: {name} knows of {noted + 1} batches, the table of {mine + 1}, so what was "
                "taken is not known",
                code="LEDGER_DISAGREES",
                table=place.name,
                hint=f"restore both, or start anew: remove {place.path.parent} and {folder}",
            )

    @property
    def partition(self) -> int:
        """Of the rows of what was seen."""
        return self._partition

    def look(
        self, source: Source, form: Format, partition: int | None = None, *, by_name: bool = False
    ) -> Seen:
        """See what there is to take.

        Args:
            source: has the files.
            form: what is in them.
            partition: of their rows; None: one for each pattern.
            by_name: whether files are taken in the order of their names, not of when they were written.

        Raises:
            StoreUnavailable, FlowError: an object store can't be reached, or refuses.
            LakeError: a Delta table was rewritten, so rows in new files may be here already.
        """
        self.close()
        ledger = self.ledger()
        self._source, self._format = source, form
        self._partition = ledger.partition(source.pattern) if partition is None else partition
        found = source.find(by_name=by_name, taken=ledger.files)
        seen = ledger.see(found, source.pattern)
        again = [file for file in seen.unreadable if file not in self._tried]
        self._todo = source.bring([*seen.new, *again], self._incoming)
        self._changed, self.left = seen.changed, {}
        return seen

    def close(self) -> None:
        """Let go of what was seen and is not taken."""
        if self._todo is not None:
            self._todo.close()
        self._todo = self._reading = None

    def ledger(self) -> Ledger:
        """What is known of files."""
        if self._ledger is None:
            self._ledger = Ledger.of(self._lake, self._table.place.name)
        return self._ledger

    def ready(self) -> None:
        """Wait until what is to be read next is on this machine; what is amiss with it, `step` says."""
        self._next()
        if self._reading is not None:
            with suppress(OSError, StoreUnavailable):
                self._reading.brought()

    def step(self) -> Taken | None:
        """Take one batch of what was seen; None where there is nothing left of it.

        Raises:
            StoreUnavailable: an object store can't be reached. What came before is taken.
        """
        assert self._source is not None
        watch = Stopwatch()
        first = self.ledger().ends.get(self._partition, 0)
        sequence = self._table.last(self._flow) + 1
        at = times.text(self._now())
        batch = Batch(sequence, at, self._source.pattern, self._topic, self._partition, first)
        for file, why in self._changed:
            batch.note(file, "changed", why)
        self._changed = []
        try:
            while batch.rows < self._bounds.rows and batch.size < self._bounds.bytes and self._next():
                self._read(batch, self._source)
        except StoreUnavailable:
            if not batch.lines:
                raise
        if not batch.lines:
            return None
        watch.lap("read")
        taken = self._commit(batch)
        phases = {**watch.phases, **taken.done.phases}
        return replace(taken, done=replace(taken.done, phases=phases))

    def _next(self) -> bool:
        """Open the next file, where none is being read; whether there is one."""
        following = next(self._todo, None) if self._todo is not None and self._reading is None else None
        if following is not None:
            file, brought = following
            known = self.ledger().files.get(file.path)
            self._reading = Reading(file, brought, self._format, known.records if known else 0)
        return self._reading is not None

    def _read(self, batch: Batch, source: Source) -> None:
        """Read on in the file that is being read."""
        assert self._reading is not None
        reading = self._reading
        try:
            values, ended = reading.take(self._bounds.rows - batch.rows, self._bounds.bytes - batch.size)
        except StoreUnavailable:
            raise  # it is still the one to read
        except FileNotFoundError:
            self._reading = None  # the next look does not see it, or misses its rest
            self._leave(batch, reading, "gone")
            return
        except UNREADABLE as e:
            self._reading = None
            self._refuse(batch, reading, " ".join(f"{type(e).__name__}: {e}".split())[:500])
            return
        self._reading = None
        if not source.unchanged(reading.file):
            self._leave(batch, reading, "changed")  # it is being written: the next look sees what it is then
            return
        batch.take(reading.file, values, ended=ended)
        reading.done += len(values)
        self._reading = None if ended else reading

    def _leave(self, batch: Batch, reading: Reading, how: str) -> None:
        """Let go of a file that is another now: for good, where some of it is in the table."""
        if reading.done:
            why = f"{how} after {reading.done} of its records were taken"
            batch.note(reading.file, "changed", why)
        else:
            self.left[reading.file.path] = f"{how} while it was read"

    def _refuse(self, batch: Batch, reading: Reading, why: str) -> None:
        """Note that a file can't be read; nothing new is no news."""
        file, known = reading.file, self.ledger().files.get(reading.file.path)
        self._tried.add(file)
        if reading.done:
            batch.note(
                file, "changed", f"can't be read after {reading.done} of its records were taken: {why}"
            )
        elif known is None or not file.same(known.modified, known.size) or known.reason != why:
            batch.note(file, "unreadable", why)

    def _commit(self, batch: Batch) -> Taken:
        ledger, table = self.ledger(), self._table
        own, name = self._flow == table.place.name, ledger_name(table.place.name)
        ends = {**ledger.ends, batch.partition: batch.end}
        intent = Intent(
            flow=self._flow,
            generation=table.place.generation,
            sequence=batch.sequence,
            consumed={f"{FILES}{self._topic}": {str(number): end for number, end in sorted(ends.items())}},
            clock=batch.clock,
            fingerprint=self._fingerprint,
            rows=batch.rows,
            newest=batch.newest if own else None,  # history says nothing of how fresh the table is
            prefix="" if own else "backfill-",
        )

        def build(pinned: Intent) -> Built:
            noted = self.committer.target(name).write(batch.ledger(), pinned.batch)
            written = table.write(batch.table(), pinned.batch)
            return Built({name: noted, table.place.name: written}, account=_account(batch))

        done = self.committer.carry_out(intent, build)
        ledger.add(batch.lines)
        return Taken(batch, intent, done)

    def _open(self, name: str) -> Target:
        comment = f"Files that {self._table.place.name} was fed from, and what came of each"
        return Target.shared(self._lake.create(name, LINES, comment=comment, properties={}))


def _account(batch: Batch) -> Account:
    rows = batch.rows
    files = sum(line["outcome"] in ("taken", "part") for line in batch.lines)
    return Account(rows_in=rows, rows_out=rows, rows_read=rows, files_read=files, bytes_read=batch.size)
