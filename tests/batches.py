"""Batches of changes, as the tests of sinks write them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.connectors.sinks import CHANGE, Changes, Position, Published

TABLE = "gold.usage"
COLUMNS = pa.schema([("host", pa.string()), ("cpu", pa.int32()), ("usage", pa.float64())])
KEYS = ("host", "cpu")


def published(
    keys: tuple[str, ...] = KEYS, columns: pa.Schema = COLUMNS, id: str = "a", name: str = TABLE
) -> Published:
    """The table whose changes are sent."""
    return Published(f"{name}->here", name, columns, keys, id)


def changes(*versions: list[tuple[Any, ...]], first: int = 1, columns: pa.Schema = COLUMNS) -> Changes:
    """Changes of versions in a row; each is (change, value of each column…)."""
    schema = columns.append(pa.field(CHANGE, pa.string()))
    return Changes(
        [
            (
                Position(1, version),
                pa.Table.from_pylist(
                    [dict(zip(schema.names, [*row[1:], row[0]], strict=True)) for row in rows], schema
                ),
            )
            for version, rows in enumerate(versions, start=first)
        ]
    )
