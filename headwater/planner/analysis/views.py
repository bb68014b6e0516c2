"""A materialized view, analysed: its keys, and whether new rows alone keep it up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headwater.connectors import decode
from headwater.errors import ProjectError
from headwater.planner import aggregate, cut, groups, marked, reach, stages
from headwater.planner.aggregate import Aggregate
from headwater.planner.analysis import checks
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.planner.analysis.timing import lateness_of
from headwater.planner.cut import Cut
from headwater.planner.groups import Groups
from headwater.planner.nodes import Node
from headwater.planner.reach import Reach, plan, reads
from headwater.planner.stages import Stage
from headwater.project.cdc.said import START
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.project.suite import of_whole_table
from headwater.runtime import catalyst, jvm
from headwater.storage import stored
from headwater.storage.names import state_name


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
    if table.refresh == "full" or len(table.sources) != 1 or table.sources[0] in project.references:
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
    """A view of groups that are kept by what rows add to them and take from them; None: it can't be so.

    It can be where it aggregates rows of one table, or of its inner part: at its last GROUP BY, or its first.
    """
    unchanging = [name for name in table.sources if name in project.references]
    for innermost in (False, True):
        part = cut.of(result, table.where, innermost=innermost)
        if part is None or _looks_beside(table, part, unchanging):
            continue
        staged = _staged(result.sparkSession, table, part, unchanging, found)
        source = "" if staged else _source(table, part, unchanging)
        if source is None:
            continue
        appended = bool(source) and found[source].appended
        kept = groups.find(result.sparkSession, part, source, innermost=innermost, appended=appended)
        above = _above(result, table, part, kept, unchanging) if kept else None
        if above is not None:
            keys, reached = above
            return replace(analysed, keys=keys or analysed.keys, groups=kept, stage=staged, reach=reached)
    return None


def _looks_beside(table: Table, part: Cut, unchanging: Sequence[str]) -> bool:
    """Whether a subquery in the GROUP BY, or below it, reads a table whose rows change: a row then changes
    groups, and it does not."""
    read = {marked.read(Node.of_plan(leaf), table.sources)[0] for leaf in cut.subqueries(part)}
    return not read <= {"", *unchanging}


def _staged(
    spark: SparkSession, table: Table, part: Cut, unchanging: Sequence[str], found: Mapping[str, Analysed]
) -> Stage | None:
    """The inner part of a query, kept by its groups, or the rows that changes touch; None: it has none that
    can be."""
    inner = stages.inner(part.taken)
    if inner is None:
        return None
    rows = inner.rows(spark)
    below = cut.of(rows, table.where, innermost=False)
    source = _source(table, below, unchanging) if below is not None and below.is_local else None
    if below is not None and source is not None and found[source].appended:
        kept = groups.find(spark, below, source, innermost=False, appended=True)
        if kept is not None:
            return Stage(rows.schema.toNullable(), kept.state, kept.keys, None, kept)
    keys = tuple(name for name in rows.columns if name.startswith("k"))
    reached = reach.of(*plan.part_of(rows, table.sources, unchanging), keys)
    if isinstance(reached, str):
        return None
    return Stage(rows.schema.toNullable(), stored.schema(rows.schema), keys, reached)


def _source(table: Table, part: Cut, unchanging: Sequence[str]) -> str | None:
    """The table whose rows a query groups, one by one; None: it groups others."""
    below = part.taken.below
    leaves = [
        (leaf, marked.read(Node.of_plan(leaf), table.sources)[0]) for leaf in jvm.items(below.collectLeaves())
    ]
    read = [(leaf, name) for leaf, name in leaves if name not in unchanging]
    if len(read) != 1 or not read[0][1] or catalyst.has(below, "AGGREGATE"):
        return None
    spark = SparkSession.active()
    try:
        checks.row_by_row(catalyst.frame(spark, below), catalyst.frame(spark, read[0][0]), table.where)
    except ProjectError:
        return None
    return read[0][1]


def _above(
    result: DataFrame, table: Table, part: Cut, kept: Groups, unchanging: Sequence[str]
) -> tuple[tuple[str, ...], Reach | None] | None:
    """What tells a view's rows apart, where its groups do (else ()), and how it is kept by the groups that
    changed; None: it can't be."""
    spark, name = result.sparkSession, state_name(table.name)
    over = part.over(spark, marked.frame(spark, len(table.sources), kept.columns))
    read, names = plan.part_of(over, [*table.sources, name], unchanging)
    own = reach.own(read, names, name)
    keys = tuple(each for each in result.columns if own.get(each) in kept.names)
    if table.keys or not part.is_local or {own[each] for each in keys} != {*kept.names}:
        keys = table.keys
    if not kept.names:  # there is one group, of which all of the view is made
        return (keys, None) if {each.source for each in reads(read)} == {name} else None
    reached = reach.of(read, names, keys or result.columns)
    return None if isinstance(reached, str) else (keys, reached)


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
    keys = maintained.keys if maintained else table.keys or tuple(result.columns)
    for key in () if maintained else keys:
        kind = result.schema[key].dataType
        if key == decode.SOURCE and not table.keys:
            continue  # a STRUCT of scalars, one for each record: a view of all columns has it
        if table.cdc is not None and key == START and _are_scalars(kind):
            continue  # a sequence of several columns
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


def _are_scalars(kind: DataType) -> bool:
    """Whether a column is a STRUCT whose fields are none that has any."""
    nested = (StructType, ArrayType, MapType)
    return isinstance(kind, StructType) and not any(isinstance(each.dataType, nested) for each in kind)
