"""A Delta table that one flow commits to: files that come, by an entry of the log; or a merge, by delta-rs.

A batch's rows are plain Parquet files in a folder of their own below the table. Nobody sees them until one
small commit adds them to the log (2 ms, against 230 ms of Spark's own append). The same files are what a
restart commits, when the kill came between building and committing.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Schema
from deltalake.table import TableMerger

from headwater.common import times
from headwater.common.scratch import quoted
from headwater.errors import ProjectError
from headwater.storage import layers, log, pruning, rewriting, stored
from headwater.storage.identity import Identity
from headwater.storage.lake import NO_HOOKS, Place
from headwater.storage.open_table import OpenTable
from headwater.storage.parquet import writing

GONE = "_gone"  # whether `Target.change` takes a row away
_OPEN: weakref.WeakValueDictionary[Path, Target] = weakref.WeakValueDictionary()
_OPENING = threading.Lock()


class Target(OpenTable):
    """One generation of a table, and each way to commit to it.

    Raises:
        CommitError: the newest commit is not of this engine, so what the flows have done is not known.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
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

    def append(self, files: list[str], identity: Identity | None = None) -> int:
        """Commit files that `write` wrote; the new version.

        Args:
            files: their paths below the table.
            identity: whose commit it is; None: of no flow.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        adds = rewriting.added(self.place.path, {path: self._next() for path in files})
        with self._mutex:
            return self._put("WRITE", adds, identity, parameters={"mode": "Append"})

    def insert(self, rows: pa.Table, identity: Identity) -> int:
        """Commit rows whose keys none of the table's has; the new version.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        rows = stored.fitted(rows, self.columns)
        version = self.append(self.put([rows], "inserted") if len(rows) else [], identity)
        if by := self.clustered:
            self._gather(version, by)
        return version

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
            updates = {quoted(name): value for name, value in merged.items()}
            return merger.when_matched_update(updates).when_not_matched_insert_all()

        return self._merge(rows, keys, whens, identity)

    def change(
        self, rows: pa.Table, keys: Sequence[str], identity: Identity, within: str | None = None
    ) -> int:
        """Change rows of the table by their keys; the new version.

        Args:
            rows: as they are to be, and in the column `GONE` whether a row is to go.
            keys: what tells rows apart.
            identity: whose commit it is.
            within: a condition on the table `t`, true of each of its rows that is to be changed or to go.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        columns = {quoted(name): f"s.{quoted(name)}" for name in rows.schema.names if name != GONE}

        def whens(merger: TableMerger) -> TableMerger:
            merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(columns)
            return merger.when_not_matched_insert(columns, predicate=f"NOT s.{GONE}")

        return self._merge(rows, tuple(keys), whens, identity, [within] if within else [])

    def _merge(
        self,
        rows: pa.Table,
        keys: tuple[str, ...],
        whens: Callable[[TableMerger], TableMerger],
        identity: Identity,
        within: Sequence[str] = (),
    ) -> int:
        near = self.near(pruning.reaches(rows, keys))
        if not near:
            there = rows.filter(pc.invert(rows[GONE])) if GONE in rows.schema.names else rows
            return self.insert(there, identity)
        same = [f"(t.{quoted(key)} IS NOT DISTINCT FROM s.{quoted(key)})" for key in keys]
        done: dict[str, Any] = {}

        def commit(properties: CommitProperties) -> None:
            merger = self._table.merge(
                rows,
                predicate=" AND ".join([*within, *pruning.conditions(rows, keys), *same]) or "true",
                source_alias="s",
                target_alias="t",
                writer_properties=writing(self.columns),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            done.update(whens(merger).execute())

        self.check(near)
        version = self._commit(commit, identity)
        copied = int(done["num_target_rows_copied"])
        if by := self.clustered:
            self._gather(version, [*by, *(key for key in keys if key not in by)])
        elif (
            self._layers.due(copied, len(rows)) and (column := layers.column(keys, self.columns)) is not None
        ):
            self._part(version, column, copied)
        return version

    def _part(self, version: int, time: str, copied: int) -> None:
        """Part the rows of the files that a commit wrote by a column of time; see `layers`."""
        files, columns = [file.path for file in log.read(self.place.path, version).added], self.columns
        self.check(files)
        rows = pa.concat_tables(stored.read(file, columns) for file in files).sort_by(time)
        starts = layers.starts(rows[time])
        self._layers.done(copied, len(rows) - starts[-1], len(rows))
        if len(starts) > 1:
            parts = [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]
            written = [path for part in parts for path in self.put([part], "parted")]
            if not self.rewrite(files, written, self._next()):
                self.forget(written)

    def _gather(self, version: int, by: Sequence[str]) -> None:
        """Part the rows of large files that a commit wrote by the columns that the table is clustered by."""
        added = log.read(self.place.path, version).added
        if large := [file.path for file in added if file.rows >= 2 * layers.CLUSTER]:
            self.put_in_order(large, by, self._next())

    def put_in_order(self, files: Sequence[str], by: Sequence[str], order: int) -> list[str]:
        """Let files of about `layers.CLUSTER` rows hold what these do, in the order of columns (of those that
        have bounds), rows that still hold apart from those that are `over`. The paths of the new ones, below
        the table; none where one of the old has gone.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        columns, over = self.columns, self.over
        self.check(files)
        sorting = [(name, "ascending") for name in by if pruning.has_bounds(columns.field(name).type)]
        rows = pa.concat_tables(stored.read(file, columns) for file in files).sort_by(sorting)
        parts = layers.parts(rows, rows[over].is_null() if over else None)
        written = [path for part in parts for path in self.put([part], "gathered")]
        if self.rewrite(files, written, order):
            return written
        self.forget(written)
        return []

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
        with self._mutex:
            if not set(before) <= set(self.files()):
                return False
            self._put(operation, rewriting.replaced(self.place.path, before, after, order))
            return True

    def expire(self, files: Sequence[str], before: datetime) -> None:
        """Let go of files whose rows have been kept long enough.

        Args:
            files: their absolute paths.
            before: when their rows came: before this time (UTC).

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        text = before.isoformat(timespec="milliseconds")
        parameters = {"predicate": json.dumps([f"committed before {text}"])}
        with self._mutex:
            flows = {name: {**flow, "expired": text} for name, flow in self.flows.items()}
            self._put(log.EXPIRY, rewriting.expired(self.place.path, files), None, flows, parameters)

    def _next(self) -> int:
        """What tells that a file comes after all that the table has; see `log.DataFile`."""
        if self._order is None:
            actions = pa.table(self._table.get_add_actions(flatten=True))
            self._order = pc.max(actions["modification_time"]).as_py() or 0
        self._order = max(self._order + 1, times.milliseconds())
        return self._order
