"""Table properties of SQL definitions: `headwater.*` set the definition, `delta.*` the Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwater.definitions import Limits, Table
from headwater.errors import ProjectError

KNOWN = (
    "headwater.emit",
    "headwater.keys",
    "headwater.max_rows_per_batch",
    "headwater.parallelism",
    "headwater.postgres",
    "headwater.publish",
    "headwater.trigger",
)


def from_properties(table: Table, properties: Mapping[str, str]) -> Table:
    """`table` with its properties applied.

    Raises:
        ProjectError: an unknown property or a value that it can't have.
    """
    where = f"{table.file}: {table.name}"
    for key in properties:
        if key not in KNOWN and not key.startswith("delta."):
            raise ProjectError(f"{where}: unknown table property '{key}'; known: {', '.join(KNOWN)}, delta.*")
    emit = properties.get("headwater.emit", "update")
    if emit == "final":
        raise ProjectError(f"{where}: headwater.emit = 'final' is not supported yet; use 'update'")
    if emit != "update":
        raise ProjectError(f"{where}: headwater.emit = '{emit}'; known: 'update'")
    keys = tuple(key.strip() for key in properties.get("headwater.keys", "").split(",") if key.strip())
    return replace(
        table,
        keys=keys,
        publish=properties.get("headwater.publish"),
        postgres=_postgres(table, properties.get("headwater.postgres")),
        limits=Limits(
            parallelism=_whole(where, properties, "headwater.parallelism"),
            max_rows_per_batch=_whole(where, properties, "headwater.max_rows_per_batch"),
            trigger=properties.get("headwater.trigger"),
        ),
        properties={k: v for k, v in properties.items() if k.startswith("delta.")},
    )


def _postgres(table: Table, text: str | None) -> tuple[str, str] | None:
    """`connection`, or `connection.schema.table`: the connection and the table there."""
    if text is None:
        return None
    connection, _, into = text.partition(".")
    return connection, into or table.name


def _whole(where: str, properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ProjectError(f"{where}: {key} = '{text}'; write a whole number of 1 or more")
    return int(text)
