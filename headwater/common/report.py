"""What became of a batch: one frozen report for `run --json`, the board, tests and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a build made of a batch's rows; all is 0 where it only committed what a killed process had built.

    The function's input is `rows_in` without the rows that `failed` has as `malformed` and `error`; where its
    rows are the table's (not groups), each is in `rows_out`, in `dropped` or in the rest of `quarantined`.

    Attributes:
        rows_in: rows taken from the input; of a view, those that its query got.
        rows_out: rows written to the table, or sent.
        quarantined: rows that went to the quarantine.
        dropped: rows that an expectation dropped.
        late: rows that came too late for their window, once for each.
        failed: {rule → rows that fail it}; `malformed` stands for rows that can't be decoded, `error` for
            those that make the definition fail.
        missed: {rule about many rows at once → what was found, and what was expected}.
        rows_read: rows of the files that were read, or of the records that came from outside the lake.
        files_read: files that were read; 0 where records come from Kafka.
        bytes_read: bytes of those files; of records from outside the lake, of their values.
        keys_touched: of a view, by how many keys its changed rows were found; None: all of it was computed
            anew, and of other tables.
    """

    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    dropped: int = 0
    late: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)
    rows_read: int = 0
    files_read: int = 0
    bytes_read: int | None = None
    keys_touched: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchReport(Account):
    """One batch that is done.

    Attributes:
        flow: the table, or the name of the sink or alert.
        sequence: the batch's number; of a sink, the version up to which it was sent.
        version: the table's version that has it; -1 for flows without a table.
        generation: of the table that it feeds or, for a sink, sends; None for an alert.
        seconds: from the beginning of its first phase to its end.
        phases: {step of the batch → its seconds}, in order: `pin`, `build`, `commit` and `seal` as in
            `headwater.storage.commit`, those that were left to do; `read` before them where files arrive; of
            a sink `pin`, `send` and `seal`; of an alert Spark's own.
        at: when it was done, seconds since the epoch.
        newest: Kafka's timestamp of the newest record in the table then, milliseconds since the epoch.
        inputs: {table that was read → its newest version that was read to the end}; -1: none was yet.
        offsets: {topic → partition → the offset after the last record read}; `files:` stands before the
            topic of records that came in files.
        references: {reference table → its version}.
    """

    flow: str
    sequence: int
    version: int = -1
    generation: int | None = None
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    at: float
    newest: int | None = None
    inputs: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    @property
    def began(self) -> float:
        """When the batch was begun, seconds since the epoch."""
        return self.at - self.seconds

    @property
    def freshness(self) -> float | None:
        """How old, in seconds, the newest record was when a reader could first see it."""
        return None if self.newest is None else max(0.0, self.at - self.newest / 1000)

    def age(self) -> float | None:
        """How old, in seconds, the newest record in the table is now."""
        return None if self.newest is None else max(0.0, time.time() - self.newest / 1000)

    def json(self) -> dict[str, Any]:
        """The report as a line of `run --json` has it."""
        return {"flow": self.flow, **asdict(self), "freshness": self.freshness}

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> BatchReport:
        """A report as `json` gives it; what else a line says is passed over."""
        return cls(**{each.name: line[each.name] for each in fields(cls)})


class Stopwatch:
    """Times the phases of a batch, which follow one another."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self.phases: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """End a phase, which began when the one before it ended."""
        now = time.monotonic()
        self.phases[phase], self._last = now - self._last, now

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._began
