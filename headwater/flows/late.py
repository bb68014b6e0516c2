"""Rows of streams, told apart by whether they come too late; see `headwater.planner.event_time`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.common import database
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.planner.event_time import LATENESS, WATERMARK, EventTime


@dataclass(frozen=True)
class Telling:
    """How rows are told apart.

    Attributes:
        time: SQL, when a row happened.
        mark: SQL, what its partition is told from those of other streams by; see `Stream.mark`.
        delay: how much later a row may come, in microseconds.
        columns: those to keep.
    """

    time: str
    mark: str
    delay: int
    columns: Sequence[str]


def tell(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    fresh: str,
    telling: Telling,
    before: EventTime,
    *,
    may_be: bool,
) -> pa.Table:
    """Make a table of those rows that are on time; the others, with the watermark that they missed (UTC), and
    by how many seconds. Rows without an event time are late.

    Args:
        connection: where the rows are.
        rows: they.
        fresh: what the table is called.
        telling: how they are told apart.
        before: how far event time had come before them.
        may_be: whether one with an event time may be late.
    """
    time, late, reached = telling.time, f"{telling.time} IS NULL", str(before.closed)
    if may_be:
        known = [{"name": name, "most": most} for name, most in before.reached.items()]
        kinds = pa.schema([("name", pa.string()), ("most", pa.int64())])
        connection.register("known", pa.Table.from_pylist(known, kinds))
        partition = " || '/' || ".join(f'{SOURCE}."{part}"' for part in ("cluster", "topic", "partition"))
        partition = f"{telling.mark} || {partition}"
        reached = (
            f"greatest({before.closed}, (SELECT most FROM known WHERE name = {partition}), "
            f'max(epoch_us({time})) OVER (PARTITION BY {partition} ORDER BY {SOURCE}."offset" '
            "GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))"  # not the others of the same record
        )
        late += f" OR _reached > epoch_us({time}) + {telling.delay}"
    names = ", ".join(map(quoted, telling.columns))
    connection.execute(f"CREATE TEMP TABLE told AS SELECT *, {reached} AS _reached FROM {rows}")
    connection.execute(f"CREATE TEMP TABLE {fresh} AS SELECT {names} FROM told WHERE NOT ({late})")
    watermark = f"CASE WHEN {time} IS NOT NULL THEN _reached - {telling.delay} END"
    found = database.table(
        connection,
        f"SELECT {names}, make_timestamptz({WATERMARK}) AS {WATERMARK}, "
        f"({WATERMARK} - epoch_us({time})) / 1e6 AS {LATENESS} "
        f"FROM (SELECT *, {watermark} AS {WATERMARK} FROM told WHERE {late})",
    )
    connection.execute("DROP TABLE told")
    return found
