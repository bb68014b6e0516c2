"""History that never was in Kafka → the bronze table of a topic, by a flow of its own; see `flows.intake`.

Its rows have the table's topic and the cluster `files`; the files that one pattern names are a partition of
their own, in the order of their names. The flow shares the table with the one that reads Kafka: one process
writes both, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field

from headwater.connectors.files.source import source
from headwater.errors import FlowError
from headwater.flows.intake import Bounds, Intake
from headwater.project.definitions import Format, Topic
from headwater.project.load import Project
from headwater.storage.lake import Lake
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
        turn: AbstractContextManager[object],
        stopped: Callable[[], bool],
        announce: Callable[[], None],
    ) -> Backfilled:
        """Take the files that a pattern names and that are not in the table yet.

        Args:
            pattern: absolute, or of an object store.
            form: what is in the files.
            turn: held for each batch.
            stopped: whether to end after the batch.
            announce: called after each commit.

        Raises:
            FlowError: it was stopped, or an object store refuses.
            ConfError, StoreUnavailable: an object store is unknown, or can't be reached.
        """
        found = source(pattern, self._project.root, self._project.conf)
        with turn:
            intake = self._intake()
            seen = intake.look(found, form, by_name=True)
        done = Backfilled(known=seen.taken, partition=intake.partition)
        with closing(intake):
            while True:
                intake.ready()  # Kafka's flow need not wait for an object store
                with turn:
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
        if done.records or done.amiss:
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
