"""Reading a Delta table's log, commit by commit, without an engine.

The protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (actions `add`, `cdc`,
`commitInfo`). Every commit of this engine carries, under the key `headwater` of its commitInfo, the
map {flow → identity}: what each flow that feeds the table has done so far (`headwater.storage.commit`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import CommitError
from headwater.storage import delta, store

IDENTITY_KEY = "headwater"
EXPIRY = "DELETE"  # the operation of a commit of the engine by which rows go that were kept long enough
_heads: dict[Path, int] = {}  # the newest version of each table when it was last looked for


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that a commit added.

    Attributes:
        path: absolute.
        size: in bytes.
        rows: how many it has; -1: not recorded.
        order: the files of an appended table have come in the order of these numbers (`modificationTime`:
            milliseconds since the epoch, or a little later: no two are the same).
    """

    path: str
    size: int
    rows: int
    order: int = 0


@dataclass(frozen=True)
class Commit:
    """One version of a table.

    Attributes:
        version: its number.
        at: when it was made (UTC).
        operation: what Delta calls it (`WRITE`, `MERGE`, …).
        added: the files whose rows are new (`dataChange` only).
        removed: how many files whose rows are gone (`dataChange` only), those that expired aside.
        expired: how many files whose rows were kept long enough: see `headwater.operations.maintain.expire`.
        changes: the change feed's files, where the table keeps one.
        left: the paths of all files that are not the table's any more: also those whose rows others hold now.
        flows: {flow → identity}, as `headwater.storage.commit` writes it.
        ours: whether the engine made it; of what only makes a table that is not known.
        batches: {flow → its batch that this is}; none of what is no batch.
        files: how many files it added and removed, be the rows in them other ones or not.
        parameters, metrics: what Delta says of the operation.
    """

    version: int
    at: datetime
    operation: str
    added: tuple[DataFile, ...] = ()
    removed: int = 0
    expired: int = 0
    changes: tuple[DataFile, ...] = ()
    left: tuple[str, ...] = ()
    flows: dict[str, Any] = field(default_factory=dict)
    ours: bool = False
    batches: dict[str, int] = field(default_factory=dict)
    files: tuple[int, int] = (0, 0)
    parameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def committed(self) -> int:
        """When it was made, in milliseconds since the epoch: which table's commit it is, as positions say."""
        return round(self.at.timestamp() * 1000)


def exists(table: Path) -> bool:
    """Whether there is a Delta table at the path."""
    return head(table) >= 0


def head(table: Path) -> int:
    """The newest version; -1 when there is no table.

    The one that was found last is where to look for it: to list a long log takes as long as a small commit.
    """
    newest = _heads.get(table, -1)
    exists = store.of(table).exists
    if newest < 0 or not exists(delta.entry(table, newest)):
        newest = max(delta.versions(table), default=-1)
    while newest >= 0 and exists(delta.entry(table, newest + 1)):
        newest += 1
    _heads[table] = newest
    return newest


def first(table: Path) -> int:
    """The oldest version whose commit is still in the log; -1 when there is no table."""
    return min(delta.versions(table), default=-1)


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
        CommitError: its file is gone, or can't be read; or the table is gone.
    """
    actions = delta.actions(table, version)
    added, changes, left, removed, info, batches = [], [], [], 0, {}, {}
    for action in actions:
        if "add" in action and action["add"]["dataChange"]:
            added.append(_file(table, action["add"]))
        elif "cdc" in action:
            changes.append(_file(table, action["cdc"]))
        elif "remove" in action:
            left.append(delta.located(table, action["remove"]["path"]))
            removed += action["remove"]["dataChange"]
        elif "txn" in action:
            batches[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "commitInfo" in action:
            info = action["commitInfo"]
    ours, operation = IDENTITY_KEY in info, str(info.get("operation", ""))
    has_expired = ours and operation == EXPIRY
    return Commit(
        version=version,
        at=datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC),
        operation=operation,
        added=tuple(added),
        removed=0 if has_expired else removed,
        expired=removed if has_expired else 0,
        changes=tuple(changes),
        left=tuple(left),
        flows=json.loads(info.get(IDENTITY_KEY, "{}")),
        ours=ours,
        batches=batches,
        files=(sum("add" in action for action in actions), sum("remove" in action for action in actions)),
        parameters=info.get("operationParameters") or {},
        metrics=info.get("operationMetrics") or {},
    )


def write(table: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Make a version, where there is none yet; its entry.

    Raises:
        CommitError: there is one.
    """
    path = delta.entry(table, version)
    entry = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions).encode()
    try:
        store.of(path).put_new(path, entry)
    except FileExistsError:
        raise CommitError(
            f"{path}: something else made version {version}; only headwater may",
            code="WRITTEN_BY_OTHERS",
            file=path,
        ) from None
    return entry


def flows(table: Path) -> dict[str, Any]:
    """{flow → identity} as the newest commit has it; empty where the engine has not committed."""
    newest = head(table)
    return read(table, newest).flows if newest >= 0 else {}


def snapshot(table: Path, version: int) -> tuple[DataFile, ...]:
    """The files of a version, in the order in which their rows came."""
    return files_of(table, delta.adds(delta.opened(table, version)))


def files_of(table: Path, adds: pa.Table) -> tuple[DataFile, ...]:
    """The files of a version, as `delta.adds` has them, in the order in which their rows came."""
    if "num_records" not in adds.column_names:
        adds = adds.append_column("num_records", pa.nulls(len(adds), pa.int64()))
    files = adds.select(["modification_time", "path", "size_bytes", "num_records"]).to_pylist()
    files.sort(key=lambda file: file["modification_time"])
    return tuple(
        DataFile(
            delta.located(table, file["path"]),
            file["size_bytes"],
            -1 if file["num_records"] is None else file["num_records"],
            file["modification_time"],
        )
        for file in files
    )


def checkpoint(table: Path) -> tuple[int, int]:
    """The version of the newest checkpoint of the log, and how many actions it holds; 0, 0: none."""
    try:
        found = json.loads(store.of(table).get(table / delta.LOG / delta.LAST_CHECKPOINT))
        return int(found["version"]), int(found["size"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # readers look for the newest themselves
        return 0, 0


def expired(table: Path, version: int | None = None) -> datetime | None:
    """Before when the rows came that a table, by default its newest version, has no more, as they were kept
    long enough; None: it has all."""
    done = flows(table) if version is None else read(table, version).flows
    times = [flow["expired"] for flow in done.values() if "expired" in flow]
    return max(map(datetime.fromisoformat, times), default=None)


def last(flows: Mapping[str, Any], flow: str) -> int:
    """The number of a flow's last batch, by `flows`; -1 where it has none."""
    return int(flows[flow]["sequence"]) if flow in flows else -1


def is_past(commit: Commit, flows: Mapping[str, Any]) -> bool:
    """Whether a commit has a batch that `flows` do not have."""
    return any(last(commit.flows, flow) > last(flows, flow) for flow in commit.flows)


def not_past(table: Path, flows: Mapping[str, Any]) -> Commit:
    """The newest version without a batch that `flows` do not have: those of the table that it lies beside."""
    version = head(table)
    while is_past(commit := read(table, version), flows):
        version -= 1
    return commit


def _file(table: Path, action: dict[str, Any]) -> DataFile:
    stats = json.loads(action.get("stats") or "{}")
    return DataFile(
        delta.located(table, action["path"]),
        int(action["size"]),
        int(stats.get("numRecords", -1)),
        int(action.get("modificationTime", 0)),
    )
