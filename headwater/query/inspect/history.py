"""What each version of a table was: read from the commits of its log alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from headwater.errors import QueryError
from headwater.query.sources import Source
from headwater.storage import log
from headwater.storage.names import replay_name

# What Delta calls the operations that are no batch of a flow → what they do.
_OPERATIONS = {
    "CREATE TABLE": "table made",
    "DELETE": "records erased",
    "OPTIMIZE": "small files put together",
    "SET TBLPROPERTIES": "properties set",
    "VACUUM START": "files of old versions being removed",
    "VACUUM END": "files of old versions removed",
}


@dataclass(frozen=True)
class Version:
    """One version of a table.

    Attributes:
        version: its number.
        at: when it was made (UTC).
        what: in words: whose batch, or what else.
        rows_read: how many rows of its input the batch has read, of a view how many its query got; None where
            that is not recorded.
        keys_touched: of a view, by how many keys its changed rows were found; None: all of it was computed
            anew, and of other tables.
        rows_added: how many rows are new in the table; None where that is not recorded.
        rows_changed, rows_removed: how many are other, and gone, where rows change in place.
        files_added, files_removed: Parquet files of the table.
        seconds: how long the batch took, from its intent to its commit; None where that is not recorded.
    """

    version: int
    at: datetime
    what: str
    rows_read: int | None
    keys_touched: int | None
    rows_added: int | None
    rows_changed: int
    rows_removed: int
    files_added: int
    files_removed: int
    seconds: float | None


@dataclass(frozen=True)
class History:
    """The newest versions of a table, newest first; `first` is the oldest one whose commit is in the log."""

    versions: list[Version]
    first: int

    @property
    def ended(self) -> bool:
        """Whether there were versions before the last one here whose commits have been cleaned away."""
        return self.first > 0 and self.versions[-1].version == self.first


def history(table: Source, most: int) -> History:
    """The newest versions of a table.

    Args:
        table: the table.
        most: how many versions at most.

    Raises:
        QueryError: it is a CSV file.
    """
    if not table.is_delta:
        raise QueryError(
            f"{table.path}: {table.name} is a CSV file, which has no versions",
            code="TABLE_WITHOUT_VERSIONS",
            table=table.name,
            file=table.path,
        )
    head, first = log.head(table.path), log.first(table.path)
    versions = range(head, max(first, head - most + 1) - 1, -1)
    return History([version_of(table.name, log.read(table.path, version)) for version in versions], first)


def version_of(table: str, commit: log.Commit) -> Version:
    """What a commit of a table says."""
    flow = next(iter(commit.batches), "")
    mine = commit.flows.get(flow, {})
    counts = [file.rows for file in commit.added]
    metrics = commit.metrics if commit.operation == "MERGE" else {}
    added = None if any(count < 0 for count in counts) else sum(counts)
    return Version(
        version=commit.version,
        at=commit.at,
        what=_what(table, commit),
        rows_read=mine.get("rows"),
        keys_touched=mine.get("keys"),
        rows_added=metrics.get("num_target_rows_inserted", added),
        rows_changed=metrics.get("num_target_rows_updated", 0),
        rows_removed=metrics.get("num_target_rows_deleted", 0),
        files_added=commit.files[0],
        files_removed=commit.files[1],
        seconds=mine.get("seconds"),
    )


def _what(table: str, commit: log.Commit) -> str:
    """What made a version, in words."""
    for flow, number in commit.batches.items():
        if flow == table:
            return f"batch {number}"
        if flow == replay_name(table):
            return f"replay {number} of quarantined records"
        return f"batch {number} of {flow}"
    if commit.expired:
        return f"rows {json.loads(commit.parameters['predicate'])[0]} expired"
    if commit.operation == "ADD COLUMN":
        names = ", ".join(field["name"] for field in json.loads(commit.parameters["fields"]))
        return f"columns added: {names}"
    return _OPERATIONS.get(commit.operation, commit.operation.lower())
