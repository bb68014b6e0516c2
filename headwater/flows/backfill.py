"""History that never was in Kafka → the bronze table of a topic, by a flow of its own; see `flows.intake`.

Its rows have the table's topic and the cluster `files`; the files that one pattern names are a partition of
their own, in the order of their names. The flow shares the table with the one that reads Kafka: one process
writes both, in turns. What a run is asked for it takes in a thread of its own: Kafka's records wait for one
batch, and not for the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import cast

from headwater.connectors.files.source import source
from headwater.errors import FlowError
from headwater.flows.intake import Bounds, Intake
from headwater.project.definitions import Format, Topic
from headwater.project.load import Project
from headwater.storage import mailbox
from headwater.storage.lake import Lake
from headwater.storage.mailbox import Request
from headwater.storage.names import backfill_name, ledger_name
from headwater.storage.target import Target

AT_ONCE = 100_000  # rows at most, so that the flow that reads Kafka need not wait long for its turn


@dataclass
class Backfilled:
    """What a backfill did.

    Attributes:
        files: how many files it came to the end of.
        records: how many records it took.
        known: how many files were in the table before.
        partition: of the records.
        amiss: {file → why its records are not, or not all, in the table}.
    """

    files: int = 0
    records: int = 0
    known: int = 0
    partition: int = 0
    amiss: dict[str, str] = field(default_factory=dict)


class Backfill:
    """Takes the history of one topic.

    Args:
        project: the definitions.
        lake: where the tables lie.
        topic: the bronze table.
        table: the same, open for writing: shared with the flow that reads Kafka.
    """

    def __init__(self, project: Project, lake: Lake, topic: Topic, table: Target) -> None:
        self._project, self._lake, self._topic, self._table = project, lake, topic, table

    def recover(self) -> None:
        """Commit what a killed backfill had staged; what it had not, the next one reads."""
        self._intake()

    def __call__(
        self,
        pattern: str,
        form: Format,
        *,
        turn: Callable[[], AbstractContextManager[object]],
        stopped: Callable[[], bool],
        announce: Callable[[], None],
    ) -> Backfilled:
        """Take the files that a pattern names and that are not in the table yet.

        Args:
            pattern: absolute, or of an object store.
            form: what is in the files.
            turn: gives what is held for each batch.
            stopped: whether to end after the batch.
            announce: called after each commit.

        Raises:
            FlowError: it was stopped, or an object store refuses.
            ConfError, StoreUnavailable: an object store is unknown, or can't be reached.
        """
        found = source(pattern, self._project.root, self._project.conf)
        with turn():
            intake = self._intake()
            seen = intake.look(found, form, by_name=True)
        done = Backfilled(known=seen.taken, partition=intake.partition)
        with closing(intake):
            while True:
                intake.ready()  # who waits for a turn need not wait for an object store
                with turn():
                    taken = intake.step()
                if taken is None:
                    break
                announce()
                done.files += taken.batch.files
                done.records += taken.batch.rows
                done.amiss |= taken.batch.amiss
                if stopped():
                    raise FlowError(
                        f"stopped after {done.files} files",
                        code="STOPPED",
                        where=self._topic.where,
                        hint="run the same again, it goes on from there",
                    )
        noted = bool(done.records or done.amiss)
        done.amiss |= {path: f"{why}; take it again once it is whole" for path, why in intake.left.items()}
        if noted:
            intake.committer.target(ledger_name(self._topic.name)).checkpoint()
        still = {file.path for file in seen.unreadable} - done.amiss.keys()
        done.amiss |= {path: known.reason for path, known in intake.ledger().amiss().items() if path in still}
        return done

    def _intake(self) -> Intake:
        """The flow as its last commit left it."""
        conf, limits, topic = self._project.conf, self._topic.limits, self._topic
        rows = min(AT_ONCE, limits.max_rows_per_batch or conf.max_rows_per_batch)
        name, bounds = backfill_name(topic.name), Bounds(rows, conf.max_bytes_per_batch)
        intake = Intake(name, topic.topic, self._table, self._lake, bounds, fingerprint="")
        intake.recover()
        return intake


class Beside:
    """Backfills that other processes ask a run for, one after another, beside the flow that reads Kafka.

    Args:
        backfill: the topic's.
        topic: the bronze table.
        folder: the flow's, where it is asked.
        stop: set when the run ends.
        announce: called after each commit.
    """

    def __init__(
        self, backfill: Backfill, topic: Topic, folder: Path, stop: Event, announce: Callable[[], None]
    ) -> None:
        self._backfill, self._where, self._folder = backfill, topic.where, folder
        self._run_ends, self._announce = stop, announce
        self._ends = Event()
        self._next, self._busy = Lock(), Lock()
        self._threads = ThreadPoolExecutor(1, f"backfill of {topic.name}")
        self._asked: Future[None] | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Write the table alone; who waits is the next, however soon the other asks again."""
        with self._next:
            self._busy.acquire()
        try:
            yield
        finally:
            self._busy.release()

    def look_up(self) -> None:
        """Begin what is asked for, if nothing is under way.

        Raises:
            OSError: what came of the last one could not be told.
        """
        if self._asked is not None and self._asked.done():
            self._asked.result()
            self._asked = None
        if self._asked is None:
            for request, to in mailbox.take(self._folder):
                self._asked = self._threads.submit(self._serve, request, to)
                break

    def finish(self) -> None:
        """Wait for what is under way."""
        if self._asked is not None:
            self._asked.result()

    def close(self) -> None:
        """End after the batch that is under way."""
        self._ends.set()
        self._threads.shutdown()

    def _serve(self, request: Request, to: Path) -> None:
        mailbox.answer(to, lambda: asdict(self._done(request)), self._where)

    def _done(self, request: Request) -> Backfilled:
        return self._backfill(
            request.pattern,
            cast(Format, request.format),
            turn=self.turn,
            stopped=lambda: self._ends.is_set() or self._run_ends.is_set(),
            announce=self._announce,
        )
