"""Parquet files below a table's folder that no reader sees before a commit adds them to the log.

They are written by Spark, or from memory where they are few, into a folder of their own for each try.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from pyspark.sql import DataFrame

from headwater.common import threads
from headwater.storage import delta, pruning, recent, snapshots, stats, store, stored
from headwater.storage.lake import Place
from headwater.storage.pruning import Reach

CHANGES = "_change_data"  # the folder of the change feed
_ONE_FILE = "part-00000.parquet"
_SAMPLE = 1_000  # rows that tell whether the values of a column repeat
_MOST = 250_000  # rows of a file that is written from memory: Spark reads each file in one task


class Files:
    """The files of one generation of a table: those that it holds, and those that nobody has committed yet.

    Args:
        place: where it lies.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._store = store.of(place.path)
        self._opened = delta.opened(place.path)
        self._version = int(self._opened.version())

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
        if isinstance(rows, pa.Table) and not len(rows):
            return []
        folder, earlier = self._folder(batch)
        path = self.place.path / folder
        written = self._store.by_others(path, lambda: self._write(rows, path, options or {}))
        files = [f"{folder}/{name}" for name in written]
        for left in earlier:
            self._store.delete_all(left)
        return files

    def _folder(self, batch: str) -> tuple[str, list[Path]]:
        """Make a folder for the files of a batch; it, and those that earlier tries have left.

        The first try has one by the name of the batch. It is looked for others only where that is there: a
        table has a folder for each of its commits, thousands in an hour.
        """
        first = self.place.path / batch
        try:
            first.mkdir()
        except FileExistsError:
            earlier = [first, *self._store.find(self.place.path, f"{batch}-*")]
            again = f"{batch}-{uuid.uuid4().hex[:8]}"
            (self.place.path / again).mkdir()
            return again, earlier
        return batch, []

    def _write(self, rows: DataFrame | pa.Table, path: Path, options: Mapping[str, str]) -> list[str]:
        if isinstance(rows, pa.Table):
            parts = {
                f"part-{number:05}.parquet": rows.slice(at, _MOST)
                for number, at in enumerate(range(0, len(rows), _MOST))
            }
            threads.each(lambda name: _whole(path / name, parts[name]), list(parts))
            for name, part in parts.items():
                recent.KEPT.keep(str(path / name), part)  # whoever follows the table reads it
            return list(parts)
        # Hadoop runs `chmod`, a process, for each folder that it makes itself: make its committer's here.
        (path / "_temporary" / "0" / "_temporary").mkdir(parents=True)
        rows.write.mode("append").options(**options).parquet(str(path))
        return sorted(name for name in self._store.names(path) if name.endswith(".parquet"))

    def put(self, rows: Iterable[pa.Table], batch: str) -> list[str]:
        """Write rows, some at a time, as one file that no reader sees yet; its path below the table, or none.

        Args:
            rows: a row group each; with the columns of the table.
            batch: the name of its folder, to which something is added that no other has.
        """
        path = self.place.path / f"{batch}-{uuid.uuid4().hex}" / _ONE_FILE
        path.parent.mkdir()
        written = self._store.by_others(path, lambda: _streamed(path, self.columns, rows))
        found = [f"{path.parent.name}/{path.name}"]
        if not written:
            self.forget(found)
        return found if written else []

    def put_changes(self, rows: pa.Table) -> list[str]:
        """Write rows of the change feed, as a file that no reader sees yet; its path below the table."""
        path = self.place.path / CHANGES / uuid.uuid4().hex / _ONE_FILE
        self._store.make(path.parent)
        self._store.by_others(path, lambda: _streamed(path, rows.schema, [rows]))
        return [str(path.relative_to(self.place.path))]

    @property
    def version(self) -> int:
        """The newest version."""
        return self._version

    @property
    def _table(self) -> DeltaTable:
        """The newest version as delta-rs has it, which follows when it is asked: no further than that one, as
        what another writer has done since is no base for a commit."""
        if int(self._opened.version()) < self._version:
            self._opened.load_as_version(self._version)
        return self._opened

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return pa.schema(self._opened.schema().to_arrow())

    @property
    def _adds(self) -> pa.Table:
        """The files of the newest version; see `listing.columns`."""
        return snapshots.adds(self.place.path, self._version)

    def files(self) -> list[str]:
        """The absolute paths of the files of the newest version."""
        return [delta.located(self.place.path, path) for path in self._adds["path"].to_pylist()]

    def near(self, *wanted: Mapping[str, Reach]) -> dict[str, int]:
        """{absolute path → bytes} of those that may hold a row whose values lie where they are wanted.

        Args:
            wanted: {column → where its value is to lie}: all of one of them.
        """
        adds, found = self._adds, dict[str, int]()
        for each in wanted:
            found |= pruning.near(self.place.path, adds, each)
        return dict(sorted(found.items()))

    def ends(self, column: str) -> dict[str, tuple[Any, Any]]:
        """{absolute path → the least and the greatest value of a column}, of the files that have both."""
        found = pruning.ends(self._adds, column)
        return {delta.located(self.place.path, path): ends for path, ends in found.items()}

    def without_nulls(self, column: str) -> set[str]:
        """The absolute paths of those in which no value of a column is NULL, as far as their bounds say."""
        adds, name = self._adds, f"null_count.{column}"
        nulls = adds[name].to_pylist() if name in adds.column_names else [None] * len(adds)
        found = zip(adds["path"].to_pylist(), nulls, strict=True)
        return {delta.located(self.place.path, path) for path, count in found if count == 0}

    def held(self, columns: pa.Schema, wanted: Mapping[str, Reach] | None = None) -> pa.Table:
        """The rows of the newest version, in memory.

        Args:
            columns: the table's.
            wanted: {column → where its value is to lie}: rows of files that have none such are left out.
        """
        files = self.files() if wanted is None else self.near(wanted)
        kept = [stored.whole(file).cast(columns) for file in files]
        return pa.concat_tables(kept) if kept else columns.empty_table()

    def read(self, files: list[str]) -> pa.Table:
        """The rows of files that `write` wrote from memory, of one at least."""
        return pa.concat_tables(stored.whole(str(self.place.path / path)) for path in files)

    def forget(self, files: list[str]) -> None:
        """Delete files that `write` or `put` wrote, and nobody commits."""
        recent.KEPT.forget(str(self.place.path / path) for path in files)
        for folder in {(self.place.path / path).parent for path in files}:
            self._store.delete_all(folder)

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


def _whole(path: Path, rows: pa.Table) -> None:
    pq.write_table(
        rows,
        path,
        compression="zstd",
        use_dictionary=False,
        write_statistics=stored.bounded(rows.schema),
        store_schema=False,
        write_page_checksum=True,
    )


def _streamed(path: Path, columns: pa.Schema, rows: Iterable[pa.Table]) -> int:
    """Write rows as they come; how many there were."""
    groups = iter(rows)
    first = next(groups, columns.empty_table())
    written = 0
    with pq.ParquetWriter(
        path,
        columns,
        compression="zstd",
        use_dictionary=_repeating(first),
        write_statistics=stored.bounded(columns),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        for group in chain([first], groups):
            writer.write_table(group)
            written += len(group)
    return written


def _repeating(rows: pa.Table) -> list[str]:
    """The columns whose values repeat: of others a dictionary takes time, and more room than they do."""
    some = rows.slice(0, _SAMPLE)
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    return [name for name in flat if pc.count_distinct(some[name]).as_py() <= len(some) / 2]


def writing(columns: pa.Schema) -> WriterProperties:
    """How delta-rs writes files: without bounds of floating-point columns; see `stored.bounded`."""
    none = ColumnProperties(statistics_enabled="NONE")
    named = dict.fromkeys(stored.unbounded(columns), none)
    return WriterProperties(compression="SNAPPY", column_properties=named)
