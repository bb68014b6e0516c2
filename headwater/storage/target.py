"""A Delta table that one flow commits to: data files by Spark, or a merge; the commit by delta-rs.

Spark writes a batch's rows as plain Parquet files into a folder of their own below the table. Nobody
sees them until one small commit adds them to the log (5 ms, against 230 ms of Spark's own append). The
same files are what a restart commits, when the kill came between building and committing.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame

from headwater.errors import CommitError, ProjectError
from headwater.storage import layers, log, stats, stored
from headwater.storage.lake import NO_HOOKS, Place

GONE = "_gone"  # whether `Target.change` takes a row away
_ONE_FILE = "part-00000.parquet"
# Commits between two checkpoints of the log, where no environment says another number: a reader replays those
# since the last one, 0.4 ms each. A checkpoint costs what it holds, so the share is of its size where that is
# large.
CHECKPOINT_EVERY = 20
CHECKPOINT_SHARE = 20
_OPEN: weakref.WeakValueDictionary[Path, Target] = weakref.WeakValueDictionary()
_OPENING = threading.Lock()


@dataclass(frozen=True)
class Identity:
    """What a commit says of itself: whose it is, which one, and how far its flow has read.

    `newest` is Kafka's timestamp (epoch milliseconds, UTC) of the newest record that is in the table,
    `shares` what the windows of its suite's shares hold, `event_time` how far event time has come, `rows` how
    many rows of its input the batch has read, and `clock` its time.
    """

    flow: str
    generation: int
    sequence: int
    consumed: dict[str, Any]
    newest: int | None = None
    shares: dict[str, list[list[int]]] = field(default_factory=dict)
    event_time: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    clock: str = ""


class Target:
    """One generation of a table, open for writing by this process alone (see `headwater.storage.lease`).

    Raises:
        CommitError: the newest commit is not of this engine, so what the flows have done is not known.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._table = DeltaTable(place.path)
        newest = log.read(place.path, self.version)
        if self.version > 0 and not newest.ours:
            raise CommitError(
                f"{place.name}: something else made version {self.version} ({newest.operation}) of "
                f"{place.path}; only headwater may write there",
                code="WRITTEN_BY_OTHERS",
                table=place.name,
                file=place.path,
                hint="find that writer, then start the table and those below it anew: remove "
                f"{place.path.parent}",
            )
        self.flows: dict[str, Any] = newest.flows
        self._checkpoint = log.checkpoint(place.path)
        self._mutex = threading.Lock()
        self._order: int | None = None  # of the newest files
        self._layers = layers.Layers()

    @classmethod
    def shared(cls, place: Place) -> Target:
        """The table as others of this process have it open, who commit to it in turns: flows that follow one
        another, and maintenance.

        Raises:
            CommitError: the newest commit is not of this engine.
        """
        with _OPENING:
            found = _OPEN.get(place.path)
            if found is None or not found._is_the_newest():
                found = _OPEN[place.path] = cls(place)
            return found

    def _is_the_newest(self) -> bool:
        """Whether nobody else has committed to the table, made it anew, or put another in its place."""
        with self._mutex:
            there = DeltaTable(self.place.path)
            return (there.metadata().id, there.version()) == (self._table.metadata().id, self.version)

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self._table.version())

    def require(self, columns: pa.Schema, file: Path) -> None:
        """Check that the table holds what its definition makes.

        Raises:
            ProjectError: the definition's columns have changed since the table was made.
        """
        have = pa.schema(self._table.schema().to_arrow())
        old, new = ({f.name: str(f.type) for f in schema} for schema in (have, columns))
        if old != new:
            changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            raise ProjectError(
                f"{file}: {self.place.name} now differs from its table in {', '.join(changed)}",
                code="DEFINITION_CHANGED",
                table=self.place.name,
                file=file,
                hint="undo the change, or build the table and those below it anew: headwater rebuild",
            )

    def add(self, columns: pa.Schema) -> list[str]:
        """Add those of the columns that the table has not, behind its own, in one commit; their names.

        Rows that are there have NULL in them. What the flows have done stays as it is.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        have = pa.schema(self._table.schema().to_arrow()).names
        lacking = pa.schema([column for column in columns if column.name not in have])

        def commit(properties: CommitProperties) -> None:
            self._table.alter.add_columns(
                Schema.from_arrow(lacking).fields,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        if lacking.names:
            self._commit(commit)
        return list(lacking.names)

    def keep(self, kept: timedelta) -> None:
        """Have checkpoints of the log forget the files that have not been the table's for so long.

        By default that is a week, in which a merge each second leaves 600,000 of them, and each commit
        takes the longer the more there are. What goes from the disk is said by the commits themselves
        (`headwater.operations.maintain.clean`), never what someone will read on from. A Spark of others
        refuses to read older versions; ours is told not to (docs/spark.md).

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        wanted = {"delta.deletedFileRetentionDuration": f"interval {int(kept.total_seconds())} seconds"}

        def commit(properties: CommitProperties) -> None:
            self._table.alter.set_table_properties(
                wanted, commit_properties=properties, post_commithook_properties=NO_HOOKS
            )

        if not wanted.items() <= self._table.metadata().configuration.items():
            self._commit(commit)

    def done(self, identity: Identity) -> bool:
        """Whether this batch, or one after it, is in the table."""
        mine = self.flows.get(identity.flow)
        if mine is None or mine["generation"] < identity.generation:
            return False
        return int(mine["sequence"]) >= identity.sequence

    def last(self, flow: str) -> int:
        """The number of the last batch of a flow that is in the table; -1 where there is none."""
        return log.last(self.flows, flow)

    def write(
        self, rows: DataFrame | pa.Table, batch: str, options: Mapping[str, str] | None = None
    ) -> list[str]:
        """Write rows as files that no reader sees yet; their paths below the table.

        What earlier tries of the batch wrote, and nobody committed, is deleted.

        Args:
            rows: the rows: Spark's to compute and write, or in memory.
            batch: the batch that they are of; see `Intent.batch`.
            options: how Spark writes Parquet.
        """
        earlier = list(self.place.path.glob(f"{batch}-*"))
        folder = f"{batch}-{uuid.uuid4().hex[:8]}"
        path = self.place.path / folder
        files = [f"{folder}/{name}" for name in self._write(rows, path, options or {})]
        for left in earlier:
            shutil.rmtree(left)
        return files

    def _write(self, rows: DataFrame | pa.Table, path: Path, options: Mapping[str, str]) -> list[str]:
        if isinstance(rows, pa.Table):
            if not len(rows):
                return []
            path.mkdir()
            pq.write_table(
                rows, path / _ONE_FILE, compression="zstd", use_dictionary=False, store_schema=False
            )
            return [_ONE_FILE]
        # Hadoop runs `chmod`, a process, for each folder that it makes itself: make its committer's here.
        (path / "_temporary" / "0" / "_temporary").mkdir(parents=True)
        rows.write.mode("append").options(**options).parquet(str(path))
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(".parquet"))

    def put(self, rows: Iterable[pa.Table], batch: str) -> list[str]:
        """Write rows, some at a time, as one file that no reader sees yet; its path below the table, or none.

        Args:
            rows: a row group each; with the columns of the table.
            batch: the name of its folder, to which something is added that no other has.
        """
        path = self.place.path / f"{batch}-{uuid.uuid4().hex}" / _ONE_FILE
        path.parent.mkdir()
        written = 0
        with pq.ParquetWriter(path, self.columns, compression="zstd", store_schema=False) as writer:
            for group in rows:
                writer.write_table(group)
                written += len(group)
        found = [f"{path.parent.name}/{path.name}"]
        if not written:
            self.forget(found)
        return found if written else []

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return pa.schema(self._table.schema().to_arrow())

    def files(self) -> list[str]:
        """The absolute paths of the files of the newest version."""
        return [unquote(path) for path in self._table.file_uris()]

    def held(self, columns: pa.Schema) -> pa.Table:
        """The rows of the newest version, in memory."""
        kept = [pq.read_table(file, partitioning=None).cast(columns) for file in self.files()]
        return pa.concat_tables(kept) if kept else columns.empty_table()

    def read(self, files: list[str]) -> pa.Table:
        """The rows of files that `write` wrote from memory; none of them if there are no files."""
        found = [pq.read_table(self.place.path / path, partitioning=None) for path in files]
        return pa.concat_tables(found) if found else pa.table({})

    def forget(self, files: list[str]) -> None:
        """Delete files that `write` or `put` wrote, and nobody commits."""
        for folder in {(self.place.path / path).parent for path in files}:
            shutil.rmtree(folder)

    def rows(self, files: list[str]) -> int:
        """The rows of files that `write` wrote."""
        return sum(stats.of(self.place.path / path)[0] for path in files)

    def payload(self, files: list[str], column: str) -> int:
        """The bytes, before compression, of a column in files that `write` wrote."""
        return sum(stats.payload(self.place.path / path, column) for path in files)

    def newest(self, files: list[str], column: str) -> int | None:
        """The greatest value of a column of time in files that `write` wrote, in epoch milliseconds."""
        return max(
            (at for path in files if (at := stats.newest(self.place.path / path, column)) is not None),
            default=None,
        )

    def append(self, files: list[str], identity: Identity) -> int:
        """Commit files that `write` wrote; the new version.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        adds = [self._add(path, self._next()) for path in files]

        def commit(properties: CommitProperties) -> None:
            self._table.create_write_transaction(
                [add for add in adds if add is not None],
                mode="append",
                schema=self._table.schema(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        return self._commit(commit, identity)

    def merge(
        self, rows: pa.Table, keys: tuple[str, ...], merged: Mapping[str, str], identity: Identity
    ) -> int:
        """Merge a partial result into the table by its keys; the new version.

        Args:
            rows: the partial result.
            keys: what tells rows apart.
            merged: {column → its value after the merge}: SQL over the table `t` and the partial result `s`.
            identity: whose commit it is.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """

        def whens(merger: TableMerger) -> TableMerger:
            return merger.when_matched_update(dict(merged)).when_not_matched_insert_all()

        return self._merge(rows, keys, whens, identity)

    def change(self, rows: pa.Table, keys: Sequence[str], identity: Identity) -> int:
        """Change rows of the table by their keys; the new version.

        Args:
            rows: as they are to be, and in the column `GONE` whether a row is to go.
            keys: what tells rows apart.
            identity: whose commit it is.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        columns = {name: f's."{name}"' for name in rows.schema.names if name != GONE}

        def whens(merger: TableMerger) -> TableMerger:
            merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(columns)
            return merger.when_not_matched_insert(columns, predicate=f"NOT s.{GONE}")

        return self._merge(rows, tuple(keys), whens, identity)

    def _merge(
        self,
        rows: pa.Table,
        keys: tuple[str, ...],
        whens: Callable[[TableMerger], TableMerger],
        identity: Identity,
    ) -> int:
        if len(rows) == 0:
            return self.append([], identity)
        same = [f'(t."{key}" IS NOT DISTINCT FROM s."{key}")' for key in keys]
        done: dict[str, Any] = {}

        def commit(properties: CommitProperties) -> None:
            merger = self._table.merge(
                rows,
                predicate=" AND ".join([*stats.bounds(rows, keys), *same]) or "true",
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            done.update(whens(merger).execute())

        version = self._commit(commit, identity)
        copied = int(done["num_target_rows_copied"])
        if self._layers.due(copied, len(rows)) and (column := layers.column(keys, self.columns)) is not None:
            self._part(version, column, copied)
        return version

    def _part(self, version: int, time: str, copied: int) -> None:
        """Part the rows of the files that a commit wrote by a column of time; see `layers`."""
        files, columns = [file.path for file in log.read(self.place.path, version).added], self.columns
        rows = pa.concat_tables(stored.read(file, columns) for file in files).sort_by(time)
        starts = layers.starts(rows[time])
        self._layers.done(copied, len(rows) - starts[-1], len(rows))
        if len(starts) > 1:
            parts = [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]
            written = [path for part in parts for path in self.put([part], "parted")]
            if not self.rewrite(files, written, self._next()):
                self.forget(written)

    def checkpoint(self, every: int = CHECKPOINT_EVERY) -> None:
        """Write a checkpoint of the log when one is due; meant for another thread than the flow's.

        Args:
            every: how many commits after the last one that is, at least.
        """
        last, size = self._checkpoint
        if self.version - last >= max(every, size // CHECKPOINT_SHARE):
            DeltaTable(self.place.path).create_checkpoint()
            self._checkpoint = log.checkpoint(self.place.path)

    def _flows_with(self, identity: Identity) -> dict[str, Any]:
        """What the flows have done once this is committed."""
        before = self.flows.get(identity.flow, {})
        newest = max((at for at in (before.get("newest"), identity.newest) if at is not None), default=None)
        mine = {name: value for name, value in asdict(identity).items() if name != "flow"}
        mine["newest"] = newest
        if "expired" in before:
            mine["expired"] = before["expired"]
        pinned = mine.pop("clock")
        if identity.rows and pinned:
            mine["seconds"] = round((datetime.now(UTC) - datetime.fromisoformat(pinned)).total_seconds(), 3)
        for rare in ("shares", "event_time", "rows"):
            if not mine[rare]:
                del mine[rare]
        return {**self.flows, identity.flow: mine}

    def _commit(self, commit: Callable[[CommitProperties], None], identity: Identity | None = None) -> int:
        """Commit a batch, or what is none; the new version."""
        with self._mutex:  # maintenance commits, too, and says what has expired
            flows = self._flows_with(identity) if identity else self.flows
            properties = CommitProperties(
                custom_metadata={log.IDENTITY_KEY: json.dumps(flows)},
                app_transactions=[Transaction(identity.flow, identity.sequence)] if identity else [],
                max_commit_retries=0,
            )
            try:
                commit(properties)
            except CommitFailedError as e:
                raise CommitError(
                    f"{self.place.name}: {self.place.path} is past version {self.version}, so something "
                    "else wrote to it; only headwater may",
                    code="WRITTEN_BY_OTHERS",
                    table=self.place.name,
                    file=self.place.path,
                    hint="find that writer, then run again",
                ) from e
            self._table.update_incremental()
            self.flows = flows
            return self.version

    def rewrite(
        self, before: Sequence[str], after: Sequence[str], order: int, operation: str = "OPTIMIZE"
    ) -> bool:
        """Let files that `write` wrote hold the rows which others held; whether those were still the table's.

        Args:
            before: the absolute paths of those that go.
            after: the paths below the table of those that come.
            order: see `log.DataFile`.
            operation: what Delta calls it.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        now = int(datetime.now(UTC).timestamp() * 1000)
        with self._mutex:
            held = {unquote(path): path for path in self._table.file_uris()}
            if not all(path in held for path in before):
                return False
            info = {"timestamp": now, "operation": operation, log.IDENTITY_KEY: json.dumps(self.flows)}
            gone = [self._remove(path, now, is_change=False) for path in before]
            come = [
                {
                    "path": path,
                    "partitionValues": {},
                    "size": (self.place.path / path).stat().st_size,
                    "modificationTime": order,
                    "dataChange": False,
                    "stats": stats.of(self.place.path / path)[1],
                }
                for path in after
            ]
            self._put([{"commitInfo": info}, *gone, *({"add": each} for each in come)])
            return True

    def expire(self, files: Sequence[str], before: datetime) -> None:
        """Let go of files whose rows have been kept long enough.

        Args:
            files: their absolute paths.
            before: when their rows came: before this time (UTC).

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        now, text = int(datetime.now(UTC).timestamp() * 1000), before.isoformat(timespec="milliseconds")
        with self._mutex:
            flows = {name: {**flow, "expired": text} for name, flow in self.flows.items()}
            info = {
                "timestamp": now,
                "operation": log.EXPIRY,
                "operationParameters": {"predicate": json.dumps([f"committed before {text}"])},
                log.IDENTITY_KEY: json.dumps(flows),
            }
            self._put([{"commitInfo": info}, *(self._remove(path, now, is_change=True) for path in files)])
            self.flows = flows

    def _put(self, actions: Sequence[Mapping[str, Any]]) -> None:
        log.write(self.place.path, self.version + 1, actions)
        self._table.update_incremental()

    def _remove(self, path: str, now: int, *, is_change: bool) -> dict[str, Any]:
        """That a file goes, as the log says it."""
        gone = {
            "path": quote(os.path.relpath(path, self.place.path)),
            "deletionTimestamp": now,
            "dataChange": is_change,
            "partitionValues": {},
            "size": os.path.getsize(path),
        }
        return {"remove": gone}

    def _next(self) -> int:
        """What tells that a file comes after all that the table has; see `log.DataFile`."""
        if self._order is None:
            actions = pa.table(self._table.get_add_actions(flatten=True))
            self._order = pc.max(actions["modification_time"]).as_py() or 0
        self._order = max(self._order + 1, time.time_ns() // 1_000_000)
        return self._order

    def _add(self, path: str, order: int) -> AddAction | None:
        file = self.place.path / path
        rows, text = stats.of(file)
        if rows == 0:
            return None
        return AddAction(
            path=path,
            size=file.stat().st_size,
            partition_values={},
            modification_time=order,
            data_change=True,
            stats=text,
        )
