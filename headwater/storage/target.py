"""A Delta table that one flow commits to: files that come, by an entry of the log; or a merge, by delta-rs.

A batch's rows are plain Parquet files in a folder of their own below the table. Nobody sees them until one
small commit adds them to the log (2 ms, against 230 ms of Spark's own append). The same files are what a
restart commits, when the kill came between building and committing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Schema
from deltalake.table import TableMerger

from headwater.common.scratch import quoted
from headwater.errors import ProjectError
from headwater.storage import layers, merging, pruning, recent, rewriting, stored
from headwater.storage.identity import Identity
from headwater.storage.lake import NO_HOOKS, Place
from headwater.storage.layered import LayeredTable
from headwater.storage.parquet import writing

GONE = "_gone"  # whether `Target.change` takes a row away
_OPEN: weakref.WeakValueDictionary[Path, Target] = weakref.WeakValueDictionary()
_OPENING = threading.Lock()


class Target(LayeredTable):
    """One generation of a table, and each way to commit to it.

    Raises:
        CommitError: the newest commit is not of this engine, so what the flows have done is not known.
    """

    @classmethod
    def shared(cls, place: Place) -> Target:
        """The table as others of this process have it open, who commit to it in turns: flows that follow one
        another, and maintenance.

        Raises:
            CommitError: the newest commit is not of this engine.
        """
        found = _OPEN.get(place.path)
        if (
            found is not None and found._is_the_newest()
        ):  # it waits for who commits to it, and nobody for that
            return found
        with _OPENING:
            now = _OPEN.get(place.path)
            if now is None or now is found:
                now = _OPEN[place.path] = cls(place)
            return now

    def require(self, columns: pa.Schema, file: Path) -> None:
        """Check that the table holds what its definition makes.

        Raises:
            ProjectError: the definition's columns have changed since the table was made.
        """
        have = self.columns
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
        have = self.columns.names
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
        self,
        rows: pa.Table,
        keys: Sequence[str],
        identity: Identity,
        within: str | None = None,
        files: Collection[str] | None = None,
    ) -> int:
        """Change rows of the table by their keys; the new version.

        Args:
            rows: as they are to be, and in the column `GONE` whether a row is to go.
            keys: what tells rows apart.
            identity: whose commit it is.
            within: a condition on the table `t`, true of each of its rows that is to be changed or to go.
            files: the absolute paths of those that had these rows when it was seen which do; by default any
                that may have them by its bounds.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        is_whole = {*self.columns.names} <= {*rows.schema.names}  # else what lacks is left as it is
        while is_whole and merging.tells_apart(self.columns, keys):
            before, near = self.version, self._holding(rows, keys, files)
            if not near or not merging.is_small(near):
                break
            if (version := self._merge_here(before, near, rows, keys, identity)) is not None:
                return version
        columns = {quoted(name): f"s.{quoted(name)}" for name in rows.schema.names if name != GONE}

        def whens(merger: TableMerger) -> TableMerger:
            merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(columns)
            return merger.when_not_matched_insert(columns, predicate=f"NOT s.{GONE}")

        return self._merge(rows, tuple(keys), whens, identity, [within] if within else [])

    def _holding(self, rows: pa.Table, keys: Sequence[str], files: Collection[str] | None) -> dict[str, int]:
        """{absolute path → bytes} of files that may have the rows which change: those where they were seen,
        if they are the table's still."""
        if files is not None and {*files} <= {*(every := self.near({}))}:
            return {file: every[file] for file in files}
        return self.near(pruning.reaches(rows, keys))

    def _merge_here(
        self, before: int, near: Mapping[str, int], rows: pa.Table, keys: Sequence[str], identity: Identity
    ) -> int | None:
        """Commit what `merging` makes of the files of a version that may hold the keys; the new version.
        None: that version is not the newest any more, as maintenance has put files together."""
        self.check(near)
        columns, by = self.columns, self.clustered
        apart = None if by else layers.APART
        found = merging.merged([*near], columns, stored.fitted(rows, columns), rows[GONE], keys, apart)
        time = None if by else layers.column(tuple(keys), columns)
        parts = [each for part in found.parts for each in layers.apart(part, time)]
        written = [path for part in parts for path in self.put([part], "merged")]
        changes = self.put_changes(found.changes) if found.files and self.changes_in_place else []
        for path, part in zip(written, parts, strict=True):
            recent.KEPT.keep(str(self.place.path / path), part)  # the next merge reads it
        come = {path: self._next() for path in written}
        actions = rewriting.merged(self.place.path, found.files, come, changes)
        with self._mutex:
            is_as_read = self.version == before
            version = self._put("MERGE", actions, identity, metrics=found.metrics) if is_as_read else None
        if version is None:
            self.forget([*written, *changes])
            return None
        recent.KEPT.forget(found.files)
        if by:
            self._gather(version, [*by, *(key for key in keys if key not in by)])
        return version

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
        self._settle(version, keys, int(done["num_target_rows_copied"]), len(rows))
        return version
