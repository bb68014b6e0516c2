"""What a flow has read before of its streams, for those that look rows up there.

That are the files up to the position that the table's last commit names, not the newest ones: into these
maintenance may have put rows that are still to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headwater.common.report import Account
from headwater.flows.context import Context
from headwater.flows.ranged import RangedFlow
from headwater.project.definitions import Table
from headwater.storage import pruning, ranges
from headwater.storage.intent import Intent
from headwater.storage.pruning import Reach
from headwater.storage.ranges import Position
from headwater.storage.target import Target


@dataclass(frozen=True)
class Stream:
    """A stream as a batch reads it.

    Attributes:
        columns: its columns.
        path: where the table is.
        before: its files that were read before, as delta-rs tells them; None: there are none.
        new: those that the batch takes.
    """

    columns: StructType
    path: Path
    before: pa.Table | None
    new: Sequence[str]

    @property
    def rows(self) -> int:
        """How many rows were read before, as far as is known."""
        return pc.sum(self.before["num_records"]).as_py() or 0 if self.before is not None else 0

    def near(self, wanted: Mapping[str, Reach]) -> dict[str, int]:
        """{path → bytes} of the files from before that may hold a row with values where they are wanted."""
        return pruning.near(self.path, self.before, wanted)


class EarlierFlow(RangedFlow):
    """A flow that looks up rows that it has read before."""

    def __init__(self, context: Context, table: Table, into: Target | None = None) -> None:
        super().__init__(context, table, into)
        self._met: dict[str, int] = {}  # the files from before that the last batch read
        self._known: dict[str, tuple[tuple[Path, Position], pa.Table | None]] = {}  # those up to a position

    def _there(self, new: Mapping[str, Sequence[str]]) -> dict[str, Stream]:
        """The streams, each as a batch reads it.

        Args:
            new: {stream → its files that the batch takes}.
        """
        places, before = self._context.lake.places(), self._consumed()
        return {
            name: Stream(
                self._cursors[name].columns,
                places[name].path,
                None if at == Position(generation=0) else self._until(name, places[name].path, at),
                files,
            )
            for (name, files), at in zip(new.items(), before.values(), strict=True)
        }

    def _until(self, name: str, path: Path, at: Position) -> pa.Table | None:
        """A stream's files up to a position, looked up once while the table stands there."""
        if name not in self._known or self._known[name][0] != (path, at):
            self._known[name] = (path, at), ranges.read_until(path, at)
        return self._known[name][1]

    def _account(self, intent: Intent, *told: Any, **more: Any) -> Account:
        return replace(
            super()._account(intent, *told, **more),
            files_read=len(intent.files) + len(self._met),
            bytes_read=intent.size + sum(self._met.values()),
        )
