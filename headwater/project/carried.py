"""What says where a row came from, `_source` and `ingested_at`: which queries keep it though they omit it.

A table that decodes needs both, and so does one whose rows another judges by their time: a table of final
windows, one with an allowed lateness, a process. What feeds such a table has to keep them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwater.project.definitions import Table
from headwater.project.pipelines import is_of_pipeline

COLUMNS = ("_source", "ingested_at")


def carried(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables; those that are queries, and the flows that are, know what they keep."""
    needed: set[str] = set()
    todo = [name for name, table in tables.items() if _tells_lateness(table)]
    while todo:
        for source in tables[todo.pop()].sources:
            if source in tables and source not in needed:
                needed.add(source)
                todo.append(source)
    return {name: _carrying(table, name in needed) for name, table in tables.items()}


def _tells_lateness(table: Table) -> bool:
    return table.process is not None or table.emit == "final" or table.allowed_lateness is not None


def _carrying(table: Table, needed: bool) -> Table:
    if table.flows:
        return replace(table, flows=tuple(_carrying(flow, needed) for flow in table.flows))
    own = table.sql is None and not is_of_pipeline(table.function)  # `hw.table` has all that it keeps said
    if own or table.view or not (needed or table.decode):
        return table
    return replace(table, carries=COLUMNS)
