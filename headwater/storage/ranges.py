"""Ranges of versions: what of a table a flow takes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.errors import FlowError
from headwater.storage import feed, log, stats


@dataclass(frozen=True)
class Position:
    """How far a table has been read: all of `version` and before, and `files` files of the next one.

    A reader that comes when the log's beginning is gone starts with a snapshot: `files` files of the version
    `snapshot`, in their order; the commits after that version follow it.
    """

    generation: int
    version: int = -1
    files: int = 0
    snapshot: int | None = None

    @property
    def holds(self) -> int:
        """The version that must be kept, with all after it, for who reads on from here."""
        return self.version if self.snapshot is None else self.snapshot

    def is_within(self, other: Position) -> bool:
        """Whether both are in the same commit, or in the same snapshot."""
        return (self.version, self.snapshot) == (other.version, other.snapshot)

    def reaches(self, other: Position) -> bool:
        """Whether all that was read by `other` was read by this one."""
        if self.is_within(other):
            return self.files >= other.files
        if self.snapshot is not None or other.snapshot is not None:
            return self.snapshot is None and other.snapshot is not None and self.version >= other.snapshot
        return self.version >= other.version

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Position:
        """A position as `json` writes it."""
        return cls(
            int(value["generation"]), int(value["version"]), int(value["files"]), value.get("snapshot")
        )

    def json(self) -> dict[str, int]:
        """The position as commits and intents keep it."""
        kept = {"generation": self.generation, "version": self.version, "files": self.files}
        return kept if self.snapshot is None else {**kept, "snapshot": self.snapshot}


@dataclass(frozen=True)
class Range:
    """The files to read next, and the position after them.

    `newest` is Kafka's timestamp (epoch milliseconds) of the newest record that the table had by then, `size`
    the bytes of the files.
    """

    files: tuple[str, ...]
    rows: int
    upto: Position
    newest: int | None
    size: int = 0


def take(
    table: Path,
    name: str,
    start: Position,
    *,
    max_rows: int,
    max_bytes: int,
    upto: Position | None = None,
    changes: bool = False,
) -> Range | None:
    """What was added to an append-only table after `start`: at least one file, and then within the bounds.

    None when nothing was committed since. A range without files advances over commits that added nothing.
    Nothing after `upto` is taken, where it is given, and it may lie within a commit. With `changes` the files
    are those of the table's change feed.

    Raises:
        FlowError: a commit took rows away.
        CommitError: the log was cleaned past `start`.
    """
    at, rows, size = start, 0, 0
    files: list[str] = []
    newest: int | None = None
    for step in _steps(table, name, start, upto, changes):
        for index, file in step.left(at):
            if files and (rows + max(file.rows, 0) > max_rows or size + file.size > max_bytes):
                return Range(tuple(files), rows, replace(step.before, files=index), newest, size)
            files.append(file.path)
            rows += max(file.rows, 0)
            size += file.size
        at, newest = step.after, step.newest
    return Range(tuple(files), rows, at, newest, size) if at != start else None


def lag(table: Path, start: Position, *, changes: bool = False) -> int:
    """How many rows of the table, or of its change feed, stand after `start`."""
    at, rows = start, 0
    for step in _steps(table, table.name, start, None, changes):
        rows += sum(max(file.rows, 0) for _, file in step.left(at))
        at = step.after
    return rows


@dataclass(frozen=True)
class _Step:
    """What is read in order: the files of a commit, or of the snapshot that a reading starts with."""

    before: Position
    after: Position
    files: tuple[log.DataFile, ...]
    newest: int | None

    def left(self, at: Position) -> Iterator[tuple[int, log.DataFile]]:
        """Its files after a position, each with its number."""
        first = at.files if at.is_within(self.before) else 0
        return ((index, file) for index, file in enumerate(self.files) if index >= first)

    def cut(self, upto: Position | None) -> _Step:
        """As much of it as comes before a position."""
        if upto is None or not upto.is_within(self.before) or upto.files >= len(self.files):
            return self
        return _Step(self.before, upto, self.files[: upto.files], None)


def _steps(table: Path, name: str, start: Position, upto: Position | None, changes: bool) -> Iterator[_Step]:
    """What stands after `start`, up to a position.

    Raises:
        FlowError: a commit took rows away.
        CommitError: the log was cleaned past `start`.
    """
    if upto is not None and start.reaches(upto):
        return
    head, at = log.head(table), start
    if at == Position(at.generation) and log.first(table) > 0:
        whole = head if upto is None else upto.version if upto.snapshot is None else upto.snapshot
        at = replace(at, snapshot=whole)
    if at.snapshot is not None:
        files, flows = log.snapshot(table, at.snapshot), log.read(table, at.snapshot).flows
        after = Position(at.generation, at.snapshot)
        yield _Step(replace(at, files=0), after, files, _newest(flows)).cut(upto)
        at = after
    if upto is not None:
        head = min(head, upto.version + (upto.files > 0))  # none, where it lies in a snapshot
    for commit in log.commits(table, after=at.version, upto=head):
        if commit.removed and not changes:
            raise FlowError(
                f"{name}: version {commit.version} ({commit.operation}) took rows away from {table}, which "
                "is read as append-only",
                code="ROWS_TAKEN_AWAY",
                table=name,
                hint="rebuild the tables below it",
            )
        before, after = (Position(at.generation, version) for version in (commit.version - 1, commit.version))
        files = _counted(feed.files(commit, table)) if changes else commit.added
        yield _Step(before, after, files, _newest(commit.flows)).cut(upto)


def _counted(files: Iterable[log.DataFile]) -> tuple[log.DataFile, ...]:
    """Files of a change feed with their rows, which a log does not say."""
    return tuple(
        file if file.rows >= 0 else replace(file, rows=stats.of(Path(file.path))[0]) for file in files
    )


def _newest(flows: Mapping[str, Any]) -> int | None:
    return max((flow["newest"] for flow in flows.values() if flow.get("newest")), default=None)
