"""A materialized view, analysed: its keys, and whether new rows alone keep it up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructType

from headwater.connectors import decode
from headwater.errors import ProjectError
from headwater.planner import aggregate
from headwater.planner.aggregate import Aggregate
from headwater.planner.analysis import checks
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.planner.analysis.timing import lateness_of
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.suite import of_whole_table
from headwater.storage import stored


def maintained(
    project: Project,
    table: Table,
    found: Mapping[str, Analysed],
    frames: Sequence[DataFrame],
    result: DataFrame,
) -> Aggregate | None:
    """How a view is maintained from new rows alone, as a streaming table is; None where it is computed anew.

    It can be where it aggregates, by keys, one table whose rows never change, and nothing else.
    """
    where = table.where
    if len(table.sources) != 1 or table.sources[0] in project.references:
        return None
    if not found[table.sources[0]].appended:
        return None
    try:
        maintained = aggregate.find(result, where)
        checks.row_by_row(result, frames[0], where)
        if maintained is not None:
            lateness_of(table, maintained, result, frames[0])
    except ProjectError:
        return None
    if maintained is None or not maintained.keys:
        return None
    return maintained if set(table.keys or maintained.keys) == set(maintained.keys) else None


def analyse(project: Project, table: Table, result: DataFrame, maintained: Aggregate | None) -> Analysed:
    """A materialized view."""
    where = table.where
    checks.keys(table, result)
    checks.not_reserved(result, where)
    keys = maintained.keys if maintained else table.keys or tuple(result.columns)
    for key in () if maintained else keys:
        kind = result.schema[key].dataType
        if key == decode.SOURCE and not table.keys:
            continue  # a STRUCT of scalars, one for each record: a view of all columns has it
        if isinstance(kind, StructType | ArrayType | MapType):
            raise ProjectError(
                f"{where}: {key} is {kind.simpleString()}, which tells no rows apart",
                code="COLUMN_UNSUITABLE",
                where=where,
                hint="say in headwater.keys which columns do",
            )
    if table.name in project.suites:
        of_whole_table(project.suites[table.name])
    columns = aggregate.schema(result, where) if maintained else stored.schema(result.schema)
    return Analysed(
        table.name,
        result.schema.toNullable(),
        columns,
        keys,
        maintained,
        fingerprint(project, table),
        kind="aggregate" if maintained else "view",
    )
