"""Ranges of versions: what of a table a flow takes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CommitError, FlowError
from headwater.storage import delta, feed, log, snapshots, stats

UNTOLD = 100  # versions that brought nothing, of which a reader need not tell


@dataclass(frozen=True)
class Position:
    """How far a table has been read: all of `version` and before, and `files` files of the next one.

    A reader that comes when the log's beginning is gone starts with a snapshot: `files` files of the version
    `snapshot`, in their order; the commits after that version follow it.

    `committed` says which table that was: when the version `newest` of it was made, in milliseconds since the
    epoch. A table that was made anew has another commit there. None where that was not kept.

    `until` is the last version that is read by who reads but once; None: there is none, or not yet.
    """

    generation: int
    version: int = -1
    files: int = 0
    snapshot: int | None = None
    committed: int | None = field(default=None, compare=False)
    until: int | None = field(default=None, compare=False)

    @property
    def is_over(self) -> bool:
        """Whether all is read that ever will be."""
        return self.until is not None and self.reaches(Position(self.generation, self.until))

    @property
    def newest(self) -> int:
        """The newest version of which anything was read; -1: nothing was."""
        return self.version + (self.files > 0) if self.snapshot is None else self.snapshot

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
            int(value["generation"]),
            int(value["version"]),
            int(value["files"]),
            value.get("snapshot"),
            value.get("committed"),
            value.get("until"),
        )

    def json(self) -> dict[str, int]:
        """The position as commits and intents keep it."""
        kept = {"generation": self.generation, "version": self.version, "files": self.files}
        rare = {"snapshot": self.snapshot, "committed": self.committed, "until": self.until}
        return kept | {name: value for name, value in rare.items() if value is not None}


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


def after(table: Path, generation: int, version: int) -> Position:
    """Where who has read a version of a table, and all before it, stands."""
    return Position(generation, version, committed=log.read(table, version).committed)


def is_far(at: Position, told: Position) -> bool:
    """Whether who has read on through versions that brought nothing has to tell of it: all that comes after
    the position that it told last is kept for it.

    Args:
        at: where it stands.
        told: what it told last, of the same generation.
    """
    return at.newest - told.newest >= UNTOLD


def is_as_read(table: Path, at: Position) -> bool:
    """Whether a table still is the one that was read up to a position: neither was it made anew since, nor an
    older copy of it put back."""
    if at.newest > log.head(table):
        return False
    if at.committed is None:
        return True
    try:
        return log.read(table, at.newest).committed == at.committed
    except CommitError:
        return True  # it has gone from the log, as those may that are read no more


def is_newest(table: Path, version: int, since: datetime) -> bool:
    """Whether a version of a table is the newest, or was until some time after `since` (UTC)."""
    if log.head(table) <= version:
        return True
    try:
        return log.read(table, version + 1).at > since
    except CommitError:
        return False  # it has gone from the log


def read_until(table: Path, at: Position) -> pa.Table | None:
    """The files that were read by who stands at a position of an append-only table, as `delta.adds` has them,
    whichever of them have been put together since; None: there are none.

    Raises:
        CommitError: the log was cleaned past the position.
    """
    if at.newest < 0:
        return None
    adds = snapshots.adds(table, at.newest)
    if at.snapshot is not None:
        return adds.take(pc.sort_indices(adds["modification_time"])[: at.files])
    if not at.files:
        return adds
    later = [file.path for file in log.read(table, at.newest).added[at.files :]]
    paths = [delta.located(table, path) for path in adds["path"].to_pylist()]
    return adds.filter(pa.array([path not in later for path in paths], pa.bool_()))


def take(
    table: Path,
    name: str,
    start: Position,
    *,
    max_rows: int,
    max_bytes: int,
    upto: Position | None = None,
    changes: bool = False,
    parting: Callable[[Sequence[str]], Collection[int]] | None = None,
) -> Range | None:
    """What was added to an append-only table after `start`: at least one file, and then within the bounds.

    None when nothing was committed since. A range without files advances over commits that added nothing.
    Nothing after `upto` is taken, where it is given, and it may lie within a commit. With `changes` the files
    are those of the table's change feed. `parting` says before which files of a commit, by their numbers,
    a range may end; by default before any.

    Raises:
        FlowError: a commit took rows away.
        CommitError: the log was cleaned past `start`.
    """
    at, rows, size = start, 0, 0
    files: list[str] = []
    newest: int | None = None
    for step in _steps(table, name, start, upto, changes):
        whole = rows + _rows(step.left(at)) <= max_rows and size + _size(step.left(at)) <= max_bytes
        for index, part in step.parts(at, None if whole else parting):
            if files and (rows + _rows(part) > max_rows or size + _size(part) > max_bytes):
                return Range(tuple(files), rows, step.within(index) if index else at, newest, size)
            files += [file.path for file in part]
            rows += _rows(part)
            size += _size(part)
        at, newest = step.after, step.newest
    return Range(tuple(files), rows, at, newest, size) if at != start else None


def lag(table: Path, start: Position, *, changes: bool = False) -> int:
    """How many rows of the table, or of its change feed, stand after `start`."""
    at, rows = start, 0
    for step in _steps(table, table.name, start, None, changes):
        rows += _rows(step.left(at))
        at = step.after
    return rows


@dataclass(frozen=True)
class _Step:
    """What is read in order: the files of a commit, or of the snapshot that a reading starts with."""

    before: Position
    after: Position
    files: tuple[log.DataFile, ...]
    newest: int | None

    def left(self, at: Position) -> tuple[log.DataFile, ...]:
        """Its files after a position."""
        return self.files[self._first(at) :]

    def parts(
        self, at: Position, parting: Callable[[Sequence[str]], Collection[int]] | None
    ) -> Iterator[tuple[int, tuple[log.DataFile, ...]]]:
        """Its files after a position, as few at a time as may be, and the number of the first of these."""
        every, first = range(len(self.files)), self._first(at)
        may = every if parting is None or not self.files else parting([file.path for file in self.files])
        starts = [index for index in every[first:] if index == first or index in may]
        for start, end in pairwise([*starts, len(self.files)]):
            yield start, self.files[start:end]

    def _first(self, at: Position) -> int:
        return at.files if at.is_within(self.before) else 0

    def within(self, files: int) -> Position:
        """The position after so many of its files."""
        return replace(self.before, files=files, committed=self.after.committed)

    def cut(self, upto: Position | None) -> _Step:
        """As much of it as comes before a position."""
        if upto is None or not upto.is_within(self.before) or upto.files >= len(self.files):
            return self
        return _Step(self.before, self.within(upto.files), self.files[: upto.files], None)


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
        files, commit = log.snapshot(table, at.snapshot), log.read(table, at.snapshot)
        last = Position(at.generation, at.snapshot, committed=commit.committed)
        yield _Step(replace(at, files=0), last, files, _newest(commit.flows)).cut(upto)
        at = last
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
        before = Position(at.generation, commit.version - 1)
        last = Position(at.generation, commit.version, committed=commit.committed)
        files = _counted(feed.files(commit, table)) if changes else commit.added
        yield _Step(before, last, files, _newest(commit.flows)).cut(upto)


def _rows(files: Iterable[log.DataFile]) -> int:
    return sum(max(file.rows, 0) for file in files)


def _size(files: Iterable[log.DataFile]) -> int:
    return sum(file.size for file in files)


def _counted(files: Iterable[log.DataFile]) -> tuple[log.DataFile, ...]:
    """Files of a change feed with their rows, which a log does not say."""
    return tuple(
        file if file.rows >= 0 else replace(file, rows=stats.of(Path(file.path))[0]) for file in files
    )


def _newest(flows: Mapping[str, Any]) -> int | None:
    return max((flow["newest"] for flow in flows.values() if flow.get("newest")), default=None)
