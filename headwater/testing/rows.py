"""Rows of tables: as they are read, and as a test writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from headwater.common import times
from headwater.errors import ProjectError, Where
from headwater.planner.analysis import Analysed
from headwater.planner.partials import merge
from headwater.query import Result
from headwater.storage.identity import Identity
from headwater.storage.target import GONE, Target

Row = Mapping[str, Any]


class Rows(list[tuple[Any, ...]]):
    """Rows in an order of their own, which their values alone decide.

    Attributes:
        columns: their names.
    """

    def __init__(self, columns: Iterable[str] = (), rows: Iterable[tuple[Any, ...]] = ()) -> None:
        super().__init__(sorted(rows, key=repr))
        self.columns = tuple(columns)

    @classmethod
    def of(cls, result: Result) -> Rows:
        """Those of a query."""
        return cls(result.columns, result.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """Each as {column → value}."""
        return [dict(zip(self.columns, row, strict=True)) for row in self]


def table(rows: Iterable[Row], columns: pa.Schema, name: str) -> pa.Table:
    """Literal rows with the columns of a table; those that a row leaves out are NULL.

    Raises:
        ProjectError: a row has another column, or a value that does not fit.
    """
    found = [{**dict.fromkeys(columns.names), **row} for row in rows]
    for row in found:
        unknown = sorted(row.keys() - set(columns.names))
        if unknown:
            known = ", ".join(columns.names)
            raise ProjectError(
                f"a row for {name} has {', '.join(unknown)}; known: {known}",
                code="TEST_ROW_INVALID",
                table=name,
            )
    try:
        return pa.Table.from_pylist(found, columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
        raise ProjectError(
            f"a row for {name} does not fit its columns: {e}", code="TEST_ROW_INVALID", table=name
        ) from e


def commit(
    target: Target,
    analysed: Analysed,
    rows: pa.Table,
    consumed: dict[str, Any],
    now: datetime,
    newest: int | None = None,
) -> None:
    """Commit rows as the next batch of a table's flow: appended, merged, or put over those with their keys.

    Args:
        target: the table.
        analysed: its definition.
        rows: by its stored columns.
        consumed: how far the flow has read.
        now: the batch's time, in UTC.
        newest: Kafka's timestamp of the newest record among the rows, epoch milliseconds.
    """
    name, number = target.place.name, target.last(target.place.name) + 1
    identity = Identity(name, target.place.generation, number, consumed, newest, clock=times.text(now))
    if analysed.appended:
        target.append(target.write(rows, f"{number:012d}"), identity)
    elif analysed.aggregate is not None:
        merge(analysed.aggregate, target, rows, identity, Where.of("", name))
    else:
        kept = pa.array([False] * len(rows), pa.bool_())
        target.change(rows.append_column(GONE, kept), analysed.keys, identity)
