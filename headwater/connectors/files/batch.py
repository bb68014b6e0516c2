"""What a batch takes of files: rows for the table, and lines for its ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from headwater.connectors.files.file import File
from headwater.connectors.files.ledger import LINES, Outcome
from headwater.connectors.files.rows import COLUMNS, rows


class Batch:
    """One batch of the files that one pattern names.

    Args:
        sequence: its number.
        clock: its time, UTC, ISO 8601.
        pattern: which files.
        topic, partition: what stands in these columns.
        first: the offset of its first record.

    Attributes:
        end: the offset after its last record.
        files: how many files it came to the end of.
        newest: when the newest of its files was written: epoch milliseconds; None: it has no record.
        amiss: {file → why its records are not, or not all, in the table}.
        lines: of the ledger; `modified` in microseconds since the epoch.
    """

    def __init__(
        self, sequence: int, clock: str, pattern: str, topic: str, partition: int, first: int
    ) -> None:
        self.sequence, self.clock, self.partition = sequence, clock, partition
        self._at = datetime.fromisoformat(clock)
        self._pattern, self._topic, self._first = pattern, topic, first
        self._parts: list[pa.Table] = []
        self.end = first
        self.files = 0
        self.newest: int | None = None
        self.amiss: dict[str, str] = {}
        self.lines: list[dict[str, Any]] = []

    @property
    def rows(self) -> int:
        """How many records it has."""
        return self.end - self._first

    @property
    def size(self) -> int:
        """The bytes of their values."""
        return sum(part["value"].nbytes for part in self._parts)

    def take(self, file: File, values: pa.ChunkedArray, *, ended: bool) -> None:
        """Records of a file, and whether it ends with them."""
        topic, partition = self._topic, self.partition
        found = rows(values, file, topic=topic, partition=partition, first=self.end, clock=self._at)
        self._parts.append(found)
        self._line(file, "taken" if ended else "part", len(found), None)
        self.end += len(found)
        self.files += ended
        self.newest = max(self.newest or 0, file.modified // 1000)

    def note(self, file: File, outcome: Outcome, why: str) -> None:
        """A file whose records are not, or not all, in the table."""
        self.amiss[file.path] = why
        self._line(file, outcome, 0, why)

    def table(self) -> pa.Table:
        """The rows."""
        return pa.concat_tables(self._parts) if self._parts else COLUMNS.empty_table()

    def ledger(self) -> pa.Table:
        """The lines; columns: `LINES`."""
        return pa.Table.from_pylist(self.lines, LINES)

    def _line(self, file: File, outcome: Outcome, records: int, why: str | None) -> None:
        self.lines.append(
            {
                "path": file.path,
                "modified": file.modified,
                "size": file.size,
                "outcome": outcome,
                "reason": why,
                "pattern": self._pattern,
                "partition": self.partition,
                "first_offset": self.end,
                "records": records,
                "batch": self.sequence,
                "noted_at": self._at,
            }
        )
