"""What a definition may do, and should not: `headwater plan` says it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pyspark.sql import DataFrame

from headwater.planner.analysis.analysed import Analysed
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.runtime import catalyst, jvm

# Functions that make NULL of a text that is no JSON.
_SILENT = {"JsonToStructs": "from_json", "GetJsonObject": "get_json_object", "JsonTuple": "json_tuple"}


def of(project: Project, table: Table, result: DataFrame) -> tuple[str, ...]:
    """What is to be said of a table whose query gives `result`."""
    raw = [source for source in table.sources if source in project.raw]
    if not raw or table.decode is not None:
        return ()
    found = dict.fromkeys(
        (_SILENT[catalyst.kind(expression)], _place(table, expression))
        for node in catalyst.nodes(catalyst.analysed(result))
        for expression in catalyst.expressions(node)
        if catalyst.kind(expression) in _SILENT and not _fails_fast(expression)
    )
    return tuple(
        f"{place}: {name} makes NULL of a record of {raw[0]} that is no JSON, and nobody is told: decode it, "
        "by TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = '…'), and it is quarantined"
        for name, place in found
    )


def of_times(project: Project, table: Table, found: Mapping[str, Analysed]) -> tuple[str, ...]:
    """What is to be said of the columns by which a table tells which of its rows are late.

    Args:
        project: the definitions.
        table: one of them.
        found: the tables that it reads, and all that these read.
    """
    if table.emit != "final" and table.allowed_lateness is None and table.process is None:
        return ()
    asked = ((source, table.stream(source).event_time) for source in project.streams(table))
    return tuple(
        f"{table.file}: one row of {source} whose {time} is ahead of the clock makes all after it late: "
        f"give that time its name where {', '.join(decode)} decodes, which holds such rows back"
        for source, time in asked
        if time is not None and (decode := _unguarded(project, source, {time}, found))
    )


def _unguarded(
    project: Project, name: str, times: AbstractSet[str], found: Mapping[str, Analysed]
) -> tuple[str, ...]:
    """The tables that decode the records of a table, where none of them holds back rows by one of these
    times, or by that of windows on the way; () where one does, or nobody can tell."""
    table = project.tables.get(name)
    if table is None or table.view or table.cdc:
        return ()
    if table.decode is not None:
        return () if times & {*found[name].columns.fieldNames()} else (name,)
    decode = list[str]()
    for source in project.streams(table):
        own = table.stream(source).event_time
        above = _unguarded(project, source, times | ({own} if own else set()), found)
        if not above:
            return ()
        decode += above
    return tuple(decode)


def _place(table: Table, expression: Any) -> str:
    """The file that says an expression, of a table or a view that it reads; with the line, if that is SQL."""
    origin = expression.origin()
    if not origin.line().isDefined():
        return str(table.file)
    text = origin.sqlText().get()
    asked = (
        one for one in table.views if one.sql and one.sql.of([f"`_{name}`" for name in one.inputs]) == text
    )
    return f"{next(asked, table).file}:{origin.line().get()}"


def _fails_fast(expression: Any) -> bool:
    options = getattr(expression, "options", None)
    if catalyst.kind(expression) != "JsonToStructs" or options is None:
        return False
    return {key.lower(): value.upper() for key, value in jvm.mapping(options()).items()}.get(
        "mode"
    ) == "FAILFAST"
