"""A table with a row for each row of another whose rows change in place, analysed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater.errors import ProjectError
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.suite import of_whole_table
from headwater.runtime import catalyst
from headwater.storage import stored


def analyse(
    project: Project, table: Table, result: DataFrame, stream: DataFrame, source: Analysed
) -> Analysed:
    """A table with a row for a row of another whose rows change in place.

    Raises:
        ProjectError: it is more than that.
    """
    where = table.where
    reads = f"{where} reads {source.name}, whose rows change in place"
    view = "read it by a CREATE MATERIALIZED VIEW"
    if table.into or table.emit == "final" or table.allowed_lateness:
        raise ProjectError(
            reads,
            code="INPUT_ROWS_CHANGE",
            where=where,
            hint=f"follow it with a row for each row, and no windows or flows of its own; or {view}",
        )
    lost = set(source.keys) - catalyst.carried(result, stream)
    if lost or set(table.keys or source.keys) != set(source.keys):
        keys = ", ".join(source.keys)
        raise ProjectError(
            reads,
            code="KEYS_NOT_KEPT",
            where=where,
            hint=f"keep its keys as they are ({keys}), which tell its rows apart; or {view}",
        )
    if table.name in project.suites:
        of_whole_table(project.suites[table.name])
    columns, kept = result.schema.toNullable(), stored.schema(result.schema)
    return Analysed(
        table.name, columns, kept, source.keys, None, fingerprint(project, table), kind="changed rows"
    )
