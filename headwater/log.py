"""Reading a Delta table's log, commit by commit, without an engine.

The protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (actions `add`, `cdc`,
`commitInfo`). Every commit of this engine carries, under the key `headwater` of its commitInfo, the
map {flow → identity}: what each flow that feeds the table has done so far (`headwater.commit`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headwater.errors import CommitError

IDENTITY_KEY = "headwater"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that a commit added: absolute path, size in bytes, rows (-1: not recorded)."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Commit:
    """One version of a table.

    Attributes:
        version: its number.
        at: when it was made (UTC).
        operation: what Delta calls it (`WRITE`, `MERGE`, …).
        added: the files whose rows are new (`dataChange` only).
        removed: how many files whose rows are gone (`dataChange` only).
        changes: the change feed's files, where the table keeps one.
        flows: {flow → identity}, as `headwater.commit` writes it.
    """

    version: int
    at: datetime
    operation: str
    added: tuple[DataFile, ...] = ()
    removed: int = 0
    changes: tuple[DataFile, ...] = ()
    flows: dict[str, Any] = field(default_factory=dict)


def exists(table: Path) -> bool:
    """Whether there is a Delta table at the path."""
    return head(table) >= 0


def head(table: Path) -> int:
    """The newest version; -1 when there is no table."""
    newest = -1
    try:
        with os.scandir(table / "_delta_log") as entries:
            for entry in entries:
                if len(entry.name) == 25 and entry.name.endswith(".json"):
                    newest = max(newest, int(entry.name[:20]))
    except FileNotFoundError:
        return -1
    return newest


def commits(table: Path, *, after: int, upto: int) -> Iterator[Commit]:
    """The commits of the versions in `(after, upto]`, in order.

    Raises:
        CommitError: a version's file is gone: the log was cleaned past this reader.
    """
    for version in range(after + 1, upto + 1):
        yield read(table, version)


def read(table: Path, version: int) -> Commit:
    """The commit that made `version`.

    Raises:
        CommitError: its file is gone.
    """
    path = table / "_delta_log" / f"{version:020d}.json"
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines() if line]
    except FileNotFoundError:
        raise CommitError(
            f"{path}: version {version} is gone from the log; rebuild the tables below"
        ) from None
    added, changes, removed, info = [], [], 0, {}
    for action in actions:
        if "add" in action and action["add"]["dataChange"]:
            added.append(_file(table, action["add"]))
        elif "cdc" in action:
            changes.append(_file(table, action["cdc"]))
        elif "remove" in action and action["remove"]["dataChange"]:
            removed += 1
        elif "commitInfo" in action:
            info = action["commitInfo"]
    return Commit(
        version=version,
        at=datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC),
        operation=str(info.get("operation", "")),
        added=tuple(added),
        removed=removed,
        changes=tuple(changes),
        flows=json.loads(info.get(IDENTITY_KEY, "{}")),
    )


def flows(table: Path) -> dict[str, Any]:
    """{flow → identity} as the newest commit has it; empty where the engine has not committed."""
    newest = head(table)
    return read(table, newest).flows if newest >= 0 else {}


def last(flows: Mapping[str, Any], flow: str) -> int:
    """The number of a flow's last batch, by `flows`; -1 where it has none."""
    return int(flows[flow]["sequence"]) if flow in flows else -1


def _file(table: Path, action: dict[str, Any]) -> DataFile:
    stats = json.loads(action.get("stats") or "{}")
    return DataFile(
        str(table / unquote(action["path"])), int(action["size"]), int(stats.get("numRecords", -1))
    )
