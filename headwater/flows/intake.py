"""Files → a bronze table: the batches of a flow, each of them one commit of rows and of the ledger of files.

1. **Look**: which files the pattern names, and which of them the ledger knows (`landing.folder`,
   `landing.ledger`).
2. **Read** the next of them, within the batch's bounds. A file that does not end in the batch in which it
   begins is first read to its end: of one that is damaged nothing is taken.
3. **Commit** the ledger and the table, as any batch with two targets: see `storage.commit`. So a file is in
   the table once, whatever is killed: what was not staged is read again, what was staged is committed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from headwater.definitions import Format
from headwater.errors import CommitError
from headwater.flows.context import clock
from headwater.landing import FILES, formats
from headwater.landing.batch import Batch
from headwater.landing.folder import File, find, look
from headwater.landing.formats import UNREADABLE, Reader
from headwater.landing.ledger import LINES, Ledger, Seen, ledger_name
from headwater.storage import log
from headwater.storage.commit import Built, Committer
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.target import Target


@dataclass(frozen=True)
class Bounds:
    """What a batch has at most: rows, and bytes of their values."""

    rows: int
    bytes: int


@dataclass
class _Reading:
    """A file that is being read, and how many of its records were read."""

    file: File
    reader: Reader
    done: int


class Intake:
    """Takes files into one bronze table, by one flow.

    Args:
        flow: the flow's name.
        topic: what its rows have as topic.
        table: the table, open for writing.
        lake: where its ledger lies.
        root: where relative paths stand.
        bounds: of a batch.
        fingerprint: the definition's.
    """

    def __init__(
        self, flow: str, topic: str, table: Target, lake: Lake, root: Path, bounds: Bounds, fingerprint: str
    ) -> None:
        self._flow, self._topic, self._table = flow, topic, table
        self._lake, self._root, self._bounds = lake, root, bounds
        self._fingerprint = fingerprint
        intents = IntentFile(lake.flow_folder(flow, table.place.name))
        self.committer = Committer(table, intents, open_target=self._open)
        self._ledger: Ledger | None = None
        self._pattern, self._partition = "", 0
        self._format: Format = "json"
        self._tried: set[File] = set()  # unreadable ones
        self._todo: deque[File] = deque()
        self._changed: list[tuple[File, str]] = []
        self._reading: _Reading | None = None

    def recover(self) -> None:
        """Commit what a killed process had staged; what it had not is read again.

        Raises:
            CommitError: the ledger is of another life of the table, so what was taken is not known.
        """
        left = self.committer.unsealed()
        if left is not None and left.staged is not None:
            self.committer.carry_out(left, _nothing)
        name, place = ledger_name(self._table.place.name), self._table.place
        ledger = self._lake.places().get(name)
        mine, noted = self._table.last(self._flow), -1
        if ledger is not None and log.exists(ledger.path):
            noted = log.last(log.flows(ledger.path), self._flow)
        if mine != noted:
            folder = self._lake.at(name, 1).parent
            raise CommitError(
                f"{place.name}: {name} knows of {noted + 1} batches, the table of {mine + 1}, so what was "
                f"taken is not known; restore both, or start anew: remove {place.path.parent} and {folder}"
            )

    @property
    def partition(self) -> int:
        """Of the rows of what was seen."""
        return self._partition

    def look(
        self, pattern: str, form: Format, partition: int | None = None, *, by_name: bool = False
    ) -> Seen:
        """See what there is to take.

        Args:
            pattern: which files.
            form: what is in them.
            partition: of their rows; None: one for each pattern.
            by_name: whether files are taken in the order of their names, not of when they were written.
        """
        ledger = self.ledger()
        self._pattern, self._format = pattern, form
        self._partition = ledger.partition(pattern) if partition is None else partition
        seen = ledger.see(find(self._root, pattern, by_name=by_name), pattern)
        again = [file for file in seen.unreadable if file not in self._tried]
        self._todo = deque([*seen.new, *again])
        self._changed = seen.changed
        return seen

    def ledger(self) -> Ledger:
        """What is known of files."""
        if self._ledger is None:
            self._ledger = Ledger.of(self._lake, self._table.place.name)
        return self._ledger

    def step(self) -> Batch | None:
        """Take one batch of what was seen; None where there is nothing left of it."""
        first = self.ledger().ends.get(self._partition, 0)
        sequence = self._table.last(self._flow) + 1
        batch = Batch(sequence, clock(), self._pattern, self._topic, self._partition, first)
        for file, why in self._changed:
            batch.note(file, "changed", why)
        self._changed = []
        while batch.rows < self._bounds.rows and batch.size < self._bounds.bytes and self._next():
            self._read(batch)
        if not batch.lines:
            return None
        self._commit(batch)
        return batch

    def _next(self) -> bool:
        """Open the next file, where none is being read; whether there is one."""
        if self._reading is None and self._todo:
            file = self._todo.popleft()
            known = self.ledger().files.get(file.path)
            done = known.records if known else 0
            self._reading = _Reading(file, Reader(self._root / file.path, self._format, done), done)
        return self._reading is not None

    def _read(self, batch: Batch) -> None:
        """Read on in the file that is being read."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        path = self._root / reading.file.path
        try:
            room = self._bounds.rows - batch.rows, self._bounds.bytes - batch.size
            values, ended = reading.reader.take(*room)
            if not ended and not reading.done:
                formats.check(path, self._format)
        except FileNotFoundError:
            return  # the next look does not see it, or misses its rest
        except UNREADABLE as e:
            self._refuse(batch, reading, " ".join(f"{type(e).__name__}: {e}".split())[:500])
            return
        if look(self._root, reading.file.path) != reading.file:
            return  # it is being written: the next look sees what it is then
        batch.take(reading.file, values, ended=ended)
        reading.done += len(values)
        self._reading = None if ended else reading

    def _refuse(self, batch: Batch, reading: _Reading, why: str) -> None:
        """Note that a file can't be read; nothing new is no news."""
        file, known = reading.file, self.ledger().files.get(reading.file.path)
        self._tried.add(file)
        if reading.done:
            batch.note(
                file, "changed", f"can't be read after {reading.done} of its records were taken: {why}"
            )
        elif known is None or not file.same(known.modified, known.size) or known.reason != why:
            batch.note(file, "unreadable", why)

    def _commit(self, batch: Batch) -> None:
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
            return Built({name: noted, table.place.name: table.write(batch.table(), pinned.batch)})

        batch.version = self.committer.carry_out(intent, build)
        ledger.add(batch.lines)

    def _open(self, name: str) -> Target:
        comment = f"Files that {self._table.place.name} was fed from, and what came of each"
        return Target(self._lake.create(name, LINES, comment=comment, properties={}))


def _nothing(_: Intent) -> Built:
    raise AssertionError("what is staged is not built again")
