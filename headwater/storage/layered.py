"""A table whose rows are written anew as they are: put together, parted, in another order; or let go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import times
from headwater.storage import layers, log, pruning, recent, rewriting, stored
from headwater.storage.lake import Place
from headwater.storage.open_table import OpenTable


class LayeredTable(OpenTable):
    """One generation of a table, and what is done to its files while its rows stay what they are.

    Raises:
        CommitError: the newest commit is not of this engine, so what the flows have done is not known.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._order: int | None = None  # of the newest files
        self._layers = layers.Layers()

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
        recent.KEPT.forget(before)
        return True

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

    def _settle(self, version: int, keys: Sequence[str], copied: int, changed: int) -> None:
        """Part the rows of the files that delta-rs wrote in a merge, where that is due.

        Args:
            version: the merge's.
            keys: by which it merged.
            copied: how many rows it only copied.
            changed: how many rows it was given.
        """
        if by := self.clustered:
            self._gather(version, [*by, *(key for key in keys if key not in by)])
        elif (
            self._layers.due(copied, changed)
            and (column := layers.column(tuple(keys), self.columns)) is not None
        ):
            self._part(version, column, copied)

    def _part(self, version: int, time: str, copied: int) -> None:
        """Part the rows of the files that a commit wrote by a column of time; see `layers`."""
        files, columns = [file.path for file in log.read(self.place.path, version).added], self.columns
        self.check(files)
        rows = pa.concat_tables(stored.read(file, columns) for file in files)
        parts = layers.apart(rows, time)
        self._layers.done(copied, max(map(len, parts)), len(rows))
        if len(parts) > 1:
            written = [path for part in parts for path in self.put([part], "parted")]
            if not self.rewrite(files, written, self._next()):
                self.forget(written)

    def _gather(self, version: int, by: Sequence[str]) -> None:
        """Part the rows of large files that a commit wrote by the columns that the table is clustered by."""
        added = log.read(self.place.path, version).added
        if large := [file.path for file in added if file.rows >= 2 * layers.CLUSTER]:
            self.put_in_order(large, by, self._next())

    def _next(self) -> int:
        """What tells that a file comes after all that the table has; see `log.DataFile`."""
        if self._order is None:
            self._order = pc.max(self._adds["modification_time"]).as_py() or 0
        self._order = max(self._order + 1, times.milliseconds())
        return self._order
