"""What a definition needs, found by analysing it once on empty inputs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from headwater.connectors import decode
from headwater.errors import HeadwaterError, ProjectError
from headwater.errors.causes import asked_at, describe, first_line, raised_at
from headwater.errors.several import Collected
from headwater.planner import dependencies
from headwater.planner.analysis import (
    checks,
    hidden,
    joined,
    looked_up,
    processes,
    repeatable,
    streaming,
    timing,
    views,
    warnings,
)
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.analysis.fingerprint import fingerprint
from headwater.project import carried, windows
from headwater.project.bronze import BRONZE
from headwater.project.cdc.said import START
from headwater.project.definitions import Files, Table, Topic, View
from headwater.project.load import Project
from headwater.project.lookups import not_of_rows
from headwater.project.suite import of_whole_table
from headwater.runtime import catalyst, in_memory
from headwater.storage import stored

__all__ = [
    "BRONZE",
    "Analysed",
    "analyse",
    "apply",
    "decoded_columns",
    "fingerprint",
    "input_columns",
    "of_raw",
]


_KNOWN: dict[str, dict[str, Analysed]] = {}  # by all that an analysis depends on


def analyse(spark: SparkSession, project: Project, names: Sequence[str] = ()) -> dict[str, Analysed]:
    """Tables of the project, analysed, each after what it reads; once in a process.

    Args:
        spark: the session that analyses.
        project: the definitions.
        names: these tables, with all that they read; (): every one.

    Raises:
        ProjectError: a wrong column, a missing watermark, or what can't be done on a stream; of several
            errors, `SeveralErrors`. What reads a table that is wrong is not judged.
    """
    wanted = project.above(list(names))
    key = "\0".join([dependencies.in_process(project), *wanted])
    if key not in _KNOWN:
        _KNOWN[key] = _analysed(spark, project, [project.tables[n] for n in wanted if n in project.tables])
    return _KNOWN[key]


def _analysed(spark: SparkSession, project: Project, tables: Sequence[Table]) -> dict[str, Analysed]:
    found: dict[str, Analysed] = {}
    found |= {raw.name: of_raw(project, raw) for raw in project.raw.values()}
    wrong = Collected()
    for table in tables:
        if all(source in found or source in project.references for source in table.sources):
            with wrong.each():
                found |= _of_table(spark, project, table, found)
    wrong.check()
    return found


def _of_table(
    spark: SparkSession, project: Project, table: Table, found: Mapping[str, Analysed]
) -> dict[str, Analysed]:
    if table.flows:
        return _of_flows(spark, project, table, found)
    one = _analyse(spark, project, table, found)
    checks.late_is_free(project, table, has_late=one.late is not None)
    keys = table.process.keys if table.process else () if one.appended else one.keys
    checks.clustering(table, one.state if table.process and one.state else one.stored, keys)
    return {table.name: one}


def of_raw(project: Project, raw: Topic | Files) -> Analysed:
    """A bronze table; it takes no session to tell."""
    return Analysed(raw.name, BRONZE, stored.schema(BRONZE), (), None, fingerprint(project, raw))


_NO_HISTORY = "FOR SYSTEM_TIME AS OF stands at a table with a history: FLOW AUTO CDC … STORED AS SCD TYPE 2"


def _of_flows(
    spark: SparkSession, project: Project, table: Table, found: Mapping[str, Analysed]
) -> dict[str, Analysed]:
    """A table that several flows feed, and these: each by its own query, judged by the table's suite."""
    flows: dict[str, Analysed] = {}
    for flow in table.flows:
        one = _analyse(spark, project, flow, found, suite=table.name)
        if one.aggregate is not None:
            raise ProjectError(
                f"{flow.where} aggregates",
                code="FLOW_AGGREGATES",
                where=flow.where,
                hint=f"do that in a table that reads {table.name}",
            )
        first = next(iter(flows.values()), one)
        ours, theirs = ({f.name: f.dataType for f in each.columns} for each in (one, first))
        if ours != theirs:
            differ = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            raise ProjectError(
                f"{flow.where} and {first.name} differ in {', '.join(differ)}",
                code="FLOWS_DIFFER",
                where=flow.where,
                hint="flows into one table have the same columns"
                + (", so have the other select these too" if {*differ} <= {*carried.COLUMNS} else ""),
            )
        flows[flow.name] = replace(one, columns=first.columns, stored=first.stored)
    whole = replace(
        next(iter(flows.values())),
        name=table.name,
        fingerprint=fingerprint(project, table),
        kind="rows",
        joins=None,
        disordered=any(flow.disordered for flow in flows.values()),
    )
    return {**flows, table.name: whole}


def apply(spark: SparkSession, table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    """The definition, called with one DataFrame per source.

    Raises:
        ProjectError: the definition, or a view that it reads, does not fit its sources.
    """
    known = dict(zip(table.sources, frames, strict=True))
    for view in table.views:
        known[view.name] = hidden.kept(_computed(spark, view, known), table.carries)
    return hidden.kept(_computed(spark, table, known), table.carries)


def _computed(spark: SparkSession, definition: Table | View, known: Mapping[str, DataFrame]) -> DataFrame:
    """What a definition makes of what it reads."""
    where, query = definition.where, definition.sql
    try:
        if query is None:
            assert definition.function is not None
            result = definition.function(*(known[name] for name in definition.inputs))
            if not isinstance(result, DataFrame):
                raise ProjectError(
                    f"{where} returns {type(result).__name__}",
                    code="NOT_A_DATAFRAME",
                    where=where,
                    hint="return a DataFrame",
                )
            return result
        for name in definition.inputs:
            known[name].createOrReplaceTempView(f"`_{name}`")
        if windows.NAME in query.text.lower():
            windows.register(spark)
        return spark.sql(query.of([f"`_{name}`" for name in definition.inputs]))
    except HeadwaterError:
        raise
    except Exception as e:  # a function of the user's may raise anything
        if query is not None and not isinstance(e, PySparkException):
            raise
        said = first_line(e) if isinstance(e, AnalysisException) else describe(e)
        place = asked_at(said, where) if query is not None else raised_at(e, where)
        raise ProjectError(
            f"{place}: {said}",
            code="DEFINITION_FAILED",
            where=where,
            hint=_NO_HISTORY if f"`{START}`" in said else "mend the definition",
        ) from e


def decoded_columns(table: Table, source: StructType) -> StructType:
    """The source's columns, or the decoder's."""
    return decode.columns(decode.fields(table.decode, table.where), BRONZE) if table.decode else source


def input_columns(project: Project, table: Table, source: Analysed) -> StructType:
    """What the function sees of its stream: the source's columns, or the decoder's, and its lookup's.

    Raises:
        ProjectError: the lookup asks by other columns than the stream has, or gives what it has.
    """
    columns = decoded_columns(table, source.columns)
    return looked_up.columns(project.lookups[table.lookup], table, columns) if table.lookup else columns


def _analyse(
    spark: SparkSession,
    project: Project,
    table: Table,
    found: Mapping[str, Analysed],
    suite: str | None = None,
) -> Analysed:
    where = table.where
    if table.process is not None:
        for name in (name for name in table.sources if not found[name].appended):
            raise ProjectError(
                f"{where} reads {name}, whose rows change in place",
                code="INPUT_ROWS_CHANGE",
                where=where,
                hint="read another",
            )
        if table.name in project.suites:
            of_whole_table(project.suites[table.name])
        sources = {name: found[name].columns for name in table.sources}
        one = processes.analyse(table, table.process, sources, fingerprint(project, table))
        return replace(timing.ordered(table, found, one), warnings=warnings.of_times(project, table, found))
    streams = {name: input_columns(project, table, found[name]) for name in project.streams(table)}
    frames = []
    for name in table.sources:
        if name in streams:
            frames.append(in_memory.empty(spark, streams[name]))
            continue
        whole = project.references[name].schema(spark) if name in project.references else found[name].columns
        frames.append(_told_apart(in_memory.empty(spark, _longer(whole, [*streams.values()])), whole))
    result = apply(spark, table, frames)
    judged = _judged(project, table, found, frames, result, suite)
    if table.lookup and judged.kind != "rows":
        raise not_of_rows(table)
    if judged.kind == "view" and table.refresh == "full":
        judged = replace(judged, anew="headwater.refresh is full")
    elif judged.kind in ("view", "joined rows"):
        marked = apply(spark, table, views.inputs(spark, project, table, found))
        if judged.kind == "view":
            judged = views.kept(project, table, found, judged, marked)
        else:
            judged = joined.analyse(project, table, found, judged, marked)
    judged = timing.ordered(table, found, judged)
    said = warnings.of(project, table, result) + warnings.of_times(project, table, found)
    return replace(judged, warnings=said)


def _longer(columns: StructType, others: Sequence[StructType]) -> StructType:
    """Columns with so many more that Spark does not take an empty table of them for one of others: it goes by
    their types."""
    known = [[field.dataType for field in other] for other in others]
    while [field.dataType for field in columns] in known:
        columns = StructType([*columns, StructField(f"_{len(columns)}", BooleanType())])
    return columns


def _told_apart(frame: DataFrame, columns: StructType) -> DataFrame:
    """The columns of a frame that `_longer` has not added."""
    if len(frame.columns) == len(columns):
        return frame
    return frame.select(*map(catalyst.named, columns.names))


def _judged(
    project: Project,
    table: Table,
    found: Mapping[str, Analysed],
    frames: Sequence[DataFrame],
    result: DataFrame,
    suite: str | None,
) -> Analysed:
    """How a table is kept whose query gives `result`."""
    where = table.where
    checks.columns(result, where)
    checks.not_reserved(result.columns, where)
    repeatable.check(result, where)
    if table.view:
        maintained = views.maintained(project, table, found, frames, result)
        return views.analyse(project, table, result, maintained)
    return streaming.analyse(project, table, found, result, frames, suite or table.name)
