"""What differs between two sets of rows, in DuckDB's SQL: by keys that tell rows apart, or by whole rows.

They are compared by the columns that both have; doubles to nine digits, since the last ones of a sum depend
on the order of addition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import duckdb
import pyarrow as pa

from headwater.common import database, scratch
from headwater.common.scratch import comparable

Name = Literal["old", "new"]


@dataclass(frozen=True)
class Side:
    """Rows to compare.

    Attributes:
        files: which hold them, by their absolute paths.
        columns: the columns to compare.
        which: what follows FROM to leave rows out, such as a WHERE; "": all count.
        lacks: a condition on rows that these may lack, though the other ones have them; "": none.
    """

    files: list[str]
    columns: pa.Schema
    which: str = ""
    lacks: str = ""


NOTHING = Side([], pa.schema([]))


class Pair:
    """Two sets of rows, to be queried: `old` and `new` in `sql` stand for their rows.

    Args:
        connection: one of its own; see `headwater.common.scratch`.
        old, new: the rows.

    Attributes:
        columns: those that both have, in the new one's order.
        apart: those that one alone has.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, old: Side, new: Side) -> None:
        ours, theirs = old.columns.names, new.columns.names
        self.columns = [name for name in theirs if name in ours]
        self.apart = tuple(sorted({*ours, *theirs} - set(self.columns)))
        self._connection = connection
        sides: dict[Name, Side] = {"old": old, "new": new}
        self._files = {str(name): side.files for name, side in sides.items() if side.files}
        self._rows = {name: self._read(name, side) for name, side in sides.items()}

    def execute(self, sql: str) -> pa.Table:
        """What a query of `old` and `new` gives."""
        known = ", ".join(f"{name} AS NOT MATERIALIZED ({rows})" for name, rows in self._rows.items())
        return database.table(self._connection, f"WITH {known} {sql}", self._files)

    def count(self, rows: str) -> int:
        """How many rows a query of `old` and `new` has."""
        return int(self.execute(f"SELECT count(*) AS n FROM ({rows})")["n"][0].as_py())

    def _read(self, name: Name, side: Side) -> str:
        kinds = dict(zip(side.columns.names, side.columns.types, strict=True))
        values = ", ".join(comparable(column, kinds[column]) for column in self.columns) or "1"
        rows = scratch.parquet(self._connection, side.columns, name)
        return f"SELECT {values} FROM {rows if side.files else f'no_{name}'} {side.which}"


def only(one: Name, other: Name) -> str:
    """The rows that one of a pair has, and the other not, as often as that."""
    return f"FROM {one} EXCEPT ALL FROM {other}"


def same(one: str, other: str, keys: Iterable[str]) -> str:
    """Whether a row of one relation has the keys of a row of the other; NULL is like NULL.

    Args:
        one, other: the relations' names.
        keys: the columns, quoted; without any, all rows are the same.
    """
    return " AND ".join(f"{one}.{key} IS NOT DISTINCT FROM {other}.{key}" for key in keys) or "true"


def differ(one: str, other: str, columns: Iterable[str]) -> str:
    """Whether a row of one relation has another value than one of the other, in any of the columns."""
    return " OR ".join(f"{one}.{name} IS DISTINCT FROM {other}.{name}" for name in columns) or "false"
