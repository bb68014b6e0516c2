"""Which files a bronze table has taken: a table beside it, `<table>__files`, committed with each batch.

It only ever grows. What is known of a file is what its last line says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headwater.connectors.files.file import File
from headwater.storage import delta, log, stored
from headwater.storage.lake import Lake
from headwater.storage.names import ledger_name

Outcome = Literal["taken", "part", "unreadable", "changed"]

LINES = pa.schema(
    [
        ("path", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("size", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("pattern", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("records", pa.int64()),
        ("batch", pa.int64()),
        ("noted_at", pa.timestamp("us", "UTC")),
    ]
)
"""What came of files.

Columns: the file as it was (UTC, bytes); outcome (`taken`: all its records are in the table; `part`: those of
this line, more will follow; `unreadable`: none; `changed`: it was taken, wholly or in part, and is another
now: that is not read); reason, for people; the pattern that named the file; where the line's records stand in
the table: partition, the first offset and how many; the flow's batch; its clock (UTC).
"""


@dataclass(frozen=True)
class Known:
    """What is known of a file: as it was then, what came of it, how many of its records are in the table."""

    modified: int
    size: int
    outcome: Outcome
    reason: str
    pattern: str
    records: int


@dataclass(frozen=True)
class Seen:
    """Files that a pattern names, beside what is known of them.

    Attributes:
        new: those to take, in order; the one that is taken in part is the first.
        changed: those that were taken and are others now, or gone before their end, with the reason.
        unreadable: those that could not be read, and are as they were.
        taken: how many are in the table.
    """

    new: list[File]
    changed: list[tuple[File, str]]
    unreadable: list[File]
    taken: int


class Ledger:
    """What the lines of a ledger say.

    Args:
        rows: its lines, in any order; columns: `LINES`.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.files: dict[str, Known] = {}
        self.ends: dict[int, int] = {}  # of each partition, the next offset
        self.partitions: dict[str, int] = {}  # of each pattern
        modified = rows["modified"].cast(pa.int64()).to_pylist()
        lines = [{**row, "modified": at} for row, at in zip(rows.to_pylist(), modified, strict=True)]
        self.add(sorted(lines, key=lambda line: int(line["batch"])))

    @classmethod
    def of(cls, lakes: Lake, table: str) -> Ledger:
        """The ledger of a table as it is now; empty where there is none."""
        place = lakes.places().get(ledger_name(table))
        files = delta.files(place.path) if place and log.exists(place.path) else []
        parts = [stored.whole(file).cast(LINES) for file in files]
        return cls(pa.concat_tables(parts) if parts else LINES.empty_table())

    def add(self, lines: Iterable[dict[str, Any]]) -> None:
        """Further lines, in their order; `modified` in microseconds since the epoch."""
        for line in lines:
            partition, records = line["partition"], line["records"]
            before = self.files.get(line["path"])
            self.files[line["path"]] = Known(
                modified=line["modified"],
                size=line["size"],
                outcome=line["outcome"],
                reason=line["reason"] or "",
                pattern=line["pattern"],
                records=records + (before.records if before else 0),
            )
            self.partitions.setdefault(line["pattern"], partition)
            self.ends[partition] = max(self.ends.get(partition, 0), line["first_offset"] + records)

    def partition(self, pattern: str) -> int:
        """The partition of the files that a pattern names: the first that is free, where it has none yet."""
        return self.partitions.get(pattern, max(self.partitions.values(), default=-1) + 1)

    def see(self, found: list[File], pattern: str) -> Seen:
        """Tell files apart by what is known of them.

        Args:
            found: all that the pattern names.
            pattern: the same.
        """
        seen = Seen([], [], [], 0)
        taken = 0
        for file in found:
            known = self.files.get(file.path)
            if known is None:
                seen.new.append(file)
            elif known.outcome == "part":
                if file.same(known.modified, known.size):
                    seen.new.insert(0, file)
                else:
                    seen.changed.append((file, f"changed after {known.records} of its records were taken"))
            elif file.same(known.modified, known.size):
                taken += known.outcome == "taken"
                if known.outcome == "unreadable":
                    seen.unreadable.append(file)
            elif known.outcome == "unreadable":
                seen.new.append(file)
            else:
                seen.changed.append((file, "changed after it was taken"))
        there = {file.path for file in found}
        for path, known in self.files.items():
            if known.outcome == "part" and known.pattern == pattern and path not in there:
                gone = File(known.modified, path, known.size)
                seen.changed.append((gone, f"gone after {known.records} of its records were taken"))
        return Seen(seen.new, seen.changed, seen.unreadable, taken)

    def amiss(self) -> dict[str, Known]:
        """{file → what is known of it} of those whose records are not, or not all, in the table."""
        return {
            path: known for path, known in self.files.items() if known.outcome in ("unreadable", "changed")
        }
