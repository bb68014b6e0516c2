"""What is known of a table's lateness once it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.project.watermarks import Window


@dataclass(frozen=True)
class Spread:
    """How late the rows of one partition are, or of all (then cluster, topic and partition are None).

    `rows` are those whose lateness is known, `out_of_order` those of them that are late at all. Lateness
    is in microseconds; a quantile is the least value that so many rows do not exceed.
    """

    cluster: str | None
    topic: str | None
    partition: int | None
    rows: int
    out_of_order: int
    median: int
    p95: int
    p99: int
    max: int


@dataclass(frozen=True)
class Choice:
    """A delay (microseconds): how many rows would have come too late, and the share that would not."""

    delay: int
    late: int
    completeness: float
    declared_by: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """What each delay would have cost: in the windows of `tables` below, or row by row without windows.

    With sliding windows a row is late when the first of its windows to close had closed.
    """

    tables: tuple[str, ...]
    window: Window | None
    choices: tuple[Choice, ...]

    def smallest(self, target: float) -> Choice | None:
        """The smallest delay that keeps this share of the rows."""
        return next((choice for choice in self.choices if choice.completeness >= target), None)


@dataclass(frozen=True)
class Measured:
    """What is known of a table's lateness.

    Attributes:
        table, event_time: whose, by which column.
        since: rows ingested before are not judged (UTC); None: all are.
        without_time: rows whose event time is NULL.
        future: rows dated after their ingestion by more than the table's skew. They are neither judged,
            nor do they make later rows late.
        all, partitions: how late rows are.
        views: what each delay would have cost.
        notes: what was left out, and how to have it.
    """

    table: str
    event_time: str
    since: datetime | None
    without_time: int
    future: int
    all: Spread
    partitions: tuple[Spread, ...]
    views: tuple[View, ...]
    notes: tuple[str, ...]
