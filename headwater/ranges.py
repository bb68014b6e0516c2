"""Ranges of versions: what of a table a flow takes next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater import log
from headwater.errors import FlowError


@dataclass(frozen=True)
class Position:
    """How far a table has been read: all of `version` and before, and `files` files of the next one."""

    generation: int
    version: int = -1
    files: int = 0

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Position:
        """A position as `json` writes it."""
        return cls(int(value["generation"]), int(value["version"]), int(value["files"]))

    def json(self) -> dict[str, int]:
        """The position as commits and intents keep it."""
        return {"generation": self.generation, "version": self.version, "files": self.files}


@dataclass(frozen=True)
class Range:
    """The files to read next, and the position after them.

    `newest` is Kafka's timestamp (epoch milliseconds) of the newest record that the table had by then.
    """

    files: tuple[str, ...]
    rows: int
    upto: Position
    newest: int | None


def take(table: Path, name: str, start: Position, *, max_rows: int, max_bytes: int) -> Range | None:
    """What was added to an append-only table after `start`: at least one file, and then within the bounds.

    None when nothing was committed since. A range without files advances over commits that added nothing.

    Raises:
        FlowError: a commit took rows away.
        CommitError: the log was cleaned past `start`.
    """
    newest = log.head(table)
    at, rows, size = start, 0, 0
    files: list[str] = []
    newest_record: int | None = None
    for commit in log.commits(table, after=start.version, upto=newest):
        if commit.removed:
            raise FlowError(
                f"{name}: version {commit.version} ({commit.operation}) took rows away from {table}, "
                "which is read "
                "as append-only; rebuild the tables below it"
            )
        skip = at.files if commit.version == at.version + 1 else 0
        for index, file in enumerate(commit.added[skip:], start=skip):
            if files and (rows + max(file.rows, 0) > max_rows or size + file.size > max_bytes):
                return Range(
                    tuple(files), rows, Position(at.generation, commit.version - 1, index), newest_record
                )
            files.append(file.path)
            rows += max(file.rows, 0)
            size += file.size
        at = Position(at.generation, commit.version, 0)
        newest_record = _newest(commit)
    return Range(tuple(files), rows, at, newest_record) if at != start else None


def _newest(commit: log.Commit) -> int | None:
    return max((flow["newest"] for flow in commit.flows.values() if flow.get("newest")), default=None)


def lag(table: Path, start: Position) -> int:
    """How many rows of the table stand after `start`."""
    return sum(
        max(file.rows, 0)
        for commit in log.commits(table, after=start.version, upto=log.head(table))
        for file in commit.added[start.files if commit.version == start.version + 1 else 0 :]
    )
