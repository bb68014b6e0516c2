"""Two versions of a table side by side in DuckDB: which rows only one of them has.

They are compared by the columns that both have; doubles to nine digits, since the last ones of a sum depend
on the order of addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from headwater.common import scratch
from headwater.common.scratch import comparable
from headwater.storage.lake import files
from headwater.storage.names import PARTIAL

Side = Literal["old", "new"]


@dataclass(frozen=True)
class Held:
    """What a version of a table holds: its files, by their absolute paths, and its columns for readers."""

    files: list[str]
    columns: pa.Schema


NOTHING = Held([], pa.schema([]))


def held(table: Path, version: int | None = None) -> Held:
    """What a version of a Delta table holds; by default the newest."""
    columns = pa.schema(DeltaTable(table, version=version).schema().to_arrow())
    return Held(files(table, version), pa.schema([field for field in columns if field.name != PARTIAL]))


class Pair:
    """Two versions, to be queried: `old` and `new` in `sql` stand for their rows.

    Args:
        connection: one of its own; see `headwater.common.scratch`.
        old, new: the versions.

    Attributes:
        columns: those that both have, in the new one's order.
        apart: those that one alone has.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, old: Held, new: Held) -> None:
        ours, theirs = old.columns.names, new.columns.names
        self.columns = [name for name in theirs if name in ours]
        self.apart = tuple(sorted({*ours, *theirs} - set(self.columns)))
        self._connection = connection
        sides: dict[Side, Held] = {"old": old, "new": new}
        self._files = {side: held.files for side, held in sides.items() if held.files}
        self._rows = {side: self._read(side, held) for side, held in sides.items()}

    def execute(self, sql: str) -> pa.Table:
        """What a query of `old` and `new` gives."""
        known = ", ".join(f"{side} AS ({rows})" for side, rows in self._rows.items())
        return self._connection.execute(f"WITH {known} {sql}", self._files).to_arrow_table()

    def count(self, rows: str) -> int:
        """How many rows a query of `old` and `new` has."""
        return int(self.execute(f"SELECT count(*) AS n FROM ({rows})")["n"][0].as_py())

    def _read(self, side: Side, held: Held) -> str:
        kinds = dict(zip(held.columns.names, held.columns.types, strict=True))
        values = ", ".join(comparable(name, kinds[name]) for name in self.columns) or "1"
        rows = scratch.parquet(self._connection, held.columns, side)
        return f"SELECT {values} FROM {rows if held.files else f'no_{side}'}"


def only(one: Side, other: Side) -> str:
    """The rows that one of a pair has, and the other not, as often as that."""
    return f"FROM {one} EXCEPT ALL FROM {other}"
