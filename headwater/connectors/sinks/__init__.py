"""Where a table's changes go outside the lake: Kafka topics, PostgreSQL tables, OpenSearch indices, and
what you write yourself.

A sink is opened, given batches in the order of the table's versions, and closed; docs/sinks.md says how to
write one. It never holds the lake back: its flow (`headwater.flows.publish`) reads committed versions at its
own pace, and where the sink is down, it tries again while the tables go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.common import arrow
from headwater.errors import FlowError

UPSERT, DELETE = "upsert", "delete"
PIECE = 10_000  # rows that are turned into Python's values at a time
CHANGE = "_change"  # the column of `Changes.batches` that says which
PROGRESS = "headwater_sinks"  # where a store keeps which version of its table each sink has reached


@dataclass(frozen=True)
class Published:
    """The table whose changes are sent.

    Attributes:
        sink: the sink's own name, one for each pair of table and target.
        name: the table's, `gold.cpu_usage_5m`.
        columns: what its rows have.
        keys: the columns that tell its rows apart; empty where rows are only appended.
        id: of this life of the table: another one is another table with the same name.
    """

    sink: str
    name: str
    columns: pa.Schema
    keys: tuple[str, ...]
    id: str


@dataclass(frozen=True, order=True)
class Position:
    """A version of a table.

    Attributes:
        generation: of the table.
        version: its number in that.
        committed: when it was, in milliseconds since the epoch: the version of that number has another time,
            in a table that was made anew or put back. None: not known.
    """

    generation: int
    version: int
    committed: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Pieces:
    """Rows that are not held in memory all at once.

    Attributes:
        count: how many there are.
        read: reads them, some at a time; in the same order whenever it is called.
    """

    count: int
    read: Callable[[], Iterator[pa.Table]]

    def __len__(self) -> int:
        return self.count


class Changes:
    """What one or more versions in a row changed: a batch of a sink, with its identity.

    Attributes:
        first, last: the versions. A batch that is sent again after a failure may begin where the one before
            began and end later.
        rows: how many changes it has.
    """

    def __init__(self, parts: Sequence[tuple[Position, pa.Table | Pieces]]) -> None:
        self.first, self.last = parts[0][0], parts[-1][0]
        self.rows = sum(len(table) for _, table in parts)
        self._parts = parts

    def batches(self, after: Position | None = None) -> Iterator[tuple[Position, pa.Table]]:
        """The changes, version by version: the table's columns, and `_change`, `upsert` or `delete`.

        Those of one version may come in several tables, one after the other. A row with `delete` is as it was
        before; within a version a key comes once at most.

        Args:
            after: leave out versions up to this one.
        """
        for at, part in self._parts:
            if after is None or at > after:
                for table in part.read() if isinstance(part, Pieces) else (part,):
                    yield at, table

    def pieces(
        self, table: Published, after: Position | None = None
    ) -> Iterator[tuple[Position, pa.RecordBatch]]:
        """The changes as of `batches`, few enough at a time to be turned into Python's values.

        Raises:
            FlowError: Python lacks one of their times; the message names the column and the time.
        """
        for at, rows in self.batches(after):
            for piece in rows.to_batches(max_chunksize=PIECE):
                _check_times(table, piece)
                yield at, piece


def _check_times(table: Published, rows: pa.RecordBatch) -> None:
    if (found := arrow.beyond(rows)) is not None:
        raise FlowError(
            f"{table.sink}: {table.name} has a row whose {found}",
            code="SINK_REJECTS_ROW",
            table=table.name,
            hint="let its query leave such a row out, or say NULL there, then run: "
            f"headwater rebuild {table.name}",
        )


class Sink(ABC):
    """What a sink has to do; one thread uses it. After an error it is closed, and perhaps opened again.

    Attributes:
        atomic: whether a batch is there whole or not at all, and its position with it.
        checks_keys: whether `open` sees that rows are known by the table's keys. Where not, the engine
            refuses other keys than those by which they were sent.
    """

    atomic = False
    checks_keys = False

    @abstractmethod
    def open(self, table: Published) -> Position | None:
        """Connect, and make or check what is written to.

        Returns:
            The last version that the target has, where it keeps that itself, in one transaction with the
            rows: then each change is there once. None leaves that to the engine, which keeps it after
            `write` has returned: then a batch may come again after a kill.

        Raises:
            SinkUnavailable: it can't be reached now; it will be opened again, later and later.
            HeadwaterError: what a person has to mend; the sink's flow stops.
        """

    def identity(self) -> str | None:
        """What tells the target from another of its name, such as a topic's id; None: nothing does.

        It is asked once it is open, where that gave None. Another one than before is sent the whole table.

        Raises:
            SinkUnavailable, HeadwaterError: see `open`.
        """
        return None

    @abstractmethod
    def write(self, changes: Changes) -> None:
        """Write a batch, durably: what returns is not sent again.

        Raises:
            SinkUnavailable, HeadwaterError: see `open`; nothing of the batch counts as sent.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; called once for each `open`, after errors too. Must not raise."""
