"""A materialized view, analysed: its keys, and whether new rows alone keep it up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructType

from headwater.connectors import decode
from headwater.errors import ProjectError
from headwater.planner import aggregate, group_by, groups, marked, reach, stages
from headwater.planner.aggregate import Aggregate
from headwater.planner.analysis import checks
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.planner.analysis.timing import lateness_of
from headwater.planner.reach import plan
from headwater.planner.stages import Stage
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.project.suite import of_whole_table
from headwater.runtime import catalyst, jvm
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


def inputs(
    spark: SparkSession, project: Project, table: Table, found: Mapping[str, Analysed]
) -> list[DataFrame]:
    """The inputs of a view, empty, and so that `reach` finds them in what its query makes of them."""
    columns = [
        project.references[name].schema(spark) if name in project.references else found[name].columns
        for name in table.sources
    ]
    return [marked.frame(spark, number, each) for number, each in enumerate(columns)]


def _grouped(
    project: Project, table: Table, found: Mapping[str, Analysed], analysed: Analysed, result: DataFrame
) -> Analysed | None:
    """A view that is kept by what rows add to its groups and take from them; None: it can't be so.

    It can be where it aggregates, by keys, one table or what it has aggregated.
    """
    if not catalyst.has(catalyst.analysed(result), "AGGREGATE"):
        return None
    try:
        taken = group_by.take(result, table.where)
    except ProjectError:
        return None
    spark = result.sparkSession
    inner = stages.inner(taken)
    if inner is not None:
        rows = inner.rows(spark)
        keys = tuple(name for name in rows.columns if name.startswith("k"))
        unchanging = [name for name in table.sources if name in project.references]
        reached = reach.of(*plan.part_of(rows, table.sources, unchanging), keys)
        kept = groups.find(spark, taken, table.keys, appended=False)
        if isinstance(reached, str) or kept is None:
            return None
        stage = Stage(rows.schema.toNullable(), stored.schema(rows.schema), keys, reached)
        return replace(analysed, keys=kept.names, groups=kept, stage=stage)
    if len(table.sources) != 1 or table.sources[0] in project.references:
        return None
    try:
        (leaf, *_) = jvm.items(taken.below.collectLeaves())
        checks.row_by_row(result, catalyst.frame(spark, leaf), table.where)
    except ProjectError:
        return None
    appended = found[table.sources[0]].appended
    kept = groups.find(spark, taken, table.keys, appended=appended)
    return replace(analysed, keys=kept.names, groups=kept) if kept else None


def kept(
    project: Project, table: Table, found: Mapping[str, Analysed], analysed: Analysed, result: DataFrame
) -> Analysed:
    """A view with how it is kept: by what rows add to its groups and take from them, by the rows that changes
    touch, or computed anew, and why.

    Args:
        project: the definitions.
        table: the view's.
        found: the tables that are analysed.
        analysed: the view.
        result: its query over inputs as `inputs` makes them.

    Raises:
        ProjectError: it is to be kept by what changes, and can't.
    """
    grouped = None if CLOCK in table.sources else _grouped(project, table, found, analysed, result)
    if grouped is not None:
        return grouped
    unchanging = [name for name in table.sources if name in project.references]
    part, names = plan.part_of(result, table.sources, unchanging)
    reached = f"it reads {CLOCK}" if CLOCK in table.sources else reach.of(part, names, analysed.keys)
    if not isinstance(reached, str):
        return replace(analysed, reach=reached)
    if table.refresh == "incremental strict":
        raise ProjectError(
            f"{table.where} is to be kept by what changes, and all of it has to be computed anew: {reached}",
            code="NOT_INCREMENTAL",
            where=table.where,
            hint="change the query, its headwater.keys, or leave headwater.refresh out",
        )
    return replace(analysed, anew=reached)


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
