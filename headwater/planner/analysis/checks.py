"""What a definition may not do; each check raises a ProjectError that says what to do instead."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from headwater.errors import ProjectError, Where
from headwater.planner import nodes
from headwater.project.checks import named_as_beside
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.sql import nearest
from headwater.runtime import catalyst, jvm
from headwater.storage import pruning, stored
from headwater.storage.names import RESERVED, late_name

# Operators that make rows of one row at a time, or are judged by what stands below them.
_ROW_BY_ROW = {
    *("Project", "Filter", "Generate", "Expand", "Union", "Join", "LateralJoin", "Aggregate"),
    *("SubqueryAlias", "View", "ResolvedHint", "EventTimeWatermark", "CollectMetrics"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
    *("MapInPandas", "MapInArrow", "PythonMapInArrow"),
}

_VOID = re.compile(r'(^|[tT]ype": ?)"void"')  # the type of NULL, anywhere in another


def columns(result: DataFrame, where: Where) -> None:
    """The columns can be stored, each under a name of its own."""
    lower = [name.lower() for name in result.columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise ProjectError(
            f"{where}: column {twice[0]} comes twice",
            code="COLUMN_TWICE",
            where=where,
            hint="rename or drop one",
        )
    for field in result.schema:
        if "`" in field.name:
            raise ProjectError(
                f"{where}: column {field.name} has a backtick in its name, which can't be stored",
                code="COLUMN_NOT_STORABLE",
                table=where.table,
                file=where.file,
                hint="rename it",
            )
        if _VOID.search(field.dataType.json()):
            raise ProjectError(
                f"{where}: column {field.name} has no type",
                code="COLUMN_NOT_STORABLE",
                where=where,
                hint="cast it",
            )
        try:
            stored.schema(StructType([field]))
        except PySparkException:
            raise ProjectError(
                f"{where}: column {field.name} is {field.dataType.simpleString()}, which can't be stored",
                code="COLUMN_NOT_STORABLE",
                where=where,
                hint="cast it",
            ) from None


def not_reserved(columns: Iterable[str], where: Where, more: Collection[str] = ()) -> None:
    """No column of a table has the name of one of the engine's own, in whatever case.

    Args:
        columns: their names.
        where: what the error names.
        more: those that such a table has beside `RESERVED`.
    """
    for name in columns:
        if name.lower() in RESERVED or name.lower() in more:
            raise reserved(name, where)


def reserved(column: str, where: Where) -> ProjectError:
    """A column that is the engine's own."""
    return ProjectError(
        f"{where}: the engine has a column {column} of its own",
        code="COLUMN_RESERVED",
        where=where,
        hint="rename it",
    )


def late_is_free(project: Project, table: Table, *, has_late: bool) -> None:
    """No table is declared by the name of another's table of late rows, if that has one."""
    name = late_name(table.name)
    if has_late and name in project.names():
        raise named_as_beside(project.definition(name), table.name, "late rows")


def row_by_row(result: DataFrame, stream: DataFrame, where: Where) -> None:
    """Each row, and each row that is aggregated, follows from one of the stream and from reference tables."""
    source, plan = catalyst.analysed(stream), nodes.rewritten(result, ())
    subqueries = catalyst.has(plan, "PLAN_EXPRESSION")
    for node in catalyst.nodes(plan):
        name = catalyst.kind(node)
        if subqueries and any(_reads(subquery, source) for subquery in jvm.items(node.subqueries())):
            raise ProjectError(
                f"{where}: a subquery on the stream would see one batch at a time",
                code="ACROSS_ROWS",
                where=where,
                hint="leave it to a query",
            )
        if name == "Window" and f" AS {nearest.BESIDE}" in str(node.toString()):
            raise ProjectError(
                f"{where}: ASOF JOIN looks for the nearest of all rows, and a later one may be nearer",
                code="ACROSS_ROWS",
                where=where,
                hint="write CREATE MATERIALIZED VIEW, without STREAM: it is corrected as rows come",
            )
        if name not in _ROW_BY_ROW and not node.children().isEmpty():
            what = catalyst.ACROSS_ROWS.get(name, name)
            raise ProjectError(
                f"{where}: {what} looks across rows, but would see one batch at a time",
                code="ACROSS_ROWS",
                where=where,
                hint="leave it to a query, or aggregate in a gold table",
            )
        if name == "Union" and len({_reads(child, source) for child in jvm.items(node.children())}) > 1:
            raise ProjectError(
                f"{where}: this UNION would repeat rows of a table in every batch",
                code="JOIN_REPEATS_ROWS",
                where=where,
                hint="unite streams by a flow of each (CREATE FLOW … AS INSERT INTO …), or write CREATE "
                "MATERIALIZED VIEW, without STREAM",
            )
        if name == "Join":
            side = {"LeftOuter": "left", "LeftSemi": "left", "LeftAnti": "left", "RightOuter": "right"}
            kind = str(node.joinType().toString())
            keeps = side.get(kind, "none" if kind == "FullOuter" else "either")
            on_left, on_right = _reads(node.left(), source), _reads(node.right(), source)
            if on_left and on_right:
                raise ProjectError(
                    f"{where}: a join of the stream with itself would see one batch at a time",
                    code="ACROSS_ROWS",
                    where=where,
                    hint="write CREATE MATERIALIZED VIEW, or @hw.materialized_view: it reads all rows",
                )
            if keeps == "none" or (keeps == "left" and not on_left) or (keeps == "right" and not on_right):
                raise ProjectError(
                    f"{where}: this {kind} join would repeat rows of a table in every batch",
                    code="JOIN_REPEATS_ROWS",
                    where=where,
                    hint="keep the rows of the stream: stream LEFT JOIN table",
                )
    if not _reads(plan, source):
        raise ProjectError(
            f"{where}: its rows follow from none of its stream, so every batch would repeat them",
            code="JOIN_REPEATS_ROWS",
            where=where,
            hint="read the stream in its query, or write CREATE MATERIALIZED VIEW (@hw.materialized_view)",
        )


def keys(table: Table, result: DataFrame) -> None:
    """Refuse keys that are no columns of the result."""
    unknown = [key for key in table.keys if key not in result.columns]
    if unknown:
        raise ProjectError(
            f"{table.where}: key {unknown[0]} is no column of it",
            code="KEY_UNKNOWN",
            where=table.where,
            hint=f"known: {', '.join(result.columns)}",
        )


def clustering(table: Table, columns: pa.Schema, keys: Sequence[str]) -> None:
    """Refuse to put rows together by what are no keys, or have no bounds in a file.

    Args:
        table: the definition.
        columns: of the table whose rows are put together.
        keys: what tells these apart; none where they are only appended.
    """
    for name in table.cluster_by:
        if name not in keys or not pruning.has_bounds(columns.field(name).type):
            known = [key for key in keys if pruning.has_bounds(columns.field(key).type)]
            raise ProjectError(
                f"{table.where}: its rows can't be clustered by {name}",
                code="CLUSTERING_IMPOSSIBLE",
                where=table.where,
                hint=f"known: {', '.join(known) or 'none'}; a key that is a whole number, text, date or time",
            )


def _reads(plan: Any, source: Any) -> bool:
    """Whether one of the leaves of a plan is the stream."""
    return any(catalyst.is_same(leaf, source) for leaf in jvm.items(plan.collectLeaves()))


def has(columns: StructType, names: Sequence[str], source: str, where: Where) -> None:
    """A table that is read has these columns."""
    for name in names:
        if name not in columns.fieldNames():
            raise ProjectError(
                f"{where} needs the column {name} of {source}, which has: {', '.join(columns.fieldNames())}",
                code="INPUT_COLUMN_UNKNOWN",
                where=where,
            )


def suits(fits: bool, column: StructField, where: Where, what: str) -> None:
    """A column is of a type that fits what it is for."""
    if not fits:
        raise ProjectError(
            f"{where}: {column.name} is {column.dataType.simpleString()}, which {what}",
            code="COLUMN_UNSUITABLE",
            where=where,
            hint="take another column",
        )
