"""What a definition needs, found by analysing it once on empty inputs, before anything runs."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater import aggregate, decode, jvm, plans, stored, windows
from headwater.aggregate import Aggregate
from headwater.definitions import Declaration, Table, Topic
from headwater.errors import ProjectError
from headwater.eventtime import EventTime, Lateness
from headwater.flows.reading import interval
from headwater.project import Project
from headwater.quality import predicate
from headwater.quality.gate import Gate
from headwater.quality.suite import Rule, Suite, of_whole_table
from headwater.target import GONE
from headwater.watermarks import microseconds

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

BRONZE = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("cluster", StringType()),
        StructField("ingested_at", TimestampType()),
    ]
)


FUTURE_RULE = "future"  # an event time beyond ingested_at and the table's skew


@dataclass(frozen=True)
class Analysed:
    """A table as the engine runs it.

    Attributes:
        name: `<layer>.<name>`.
        columns: what readers of the table see.
        stored: what the Delta table holds: the columns, and partial results behind them.
        keys: the columns that identify a row; none for a table of appended rows.
        aggregate: how it is maintained; None where rows are appended.
        fingerprint: changes when the definition or its suite does; see `fingerprint`.
        gate: judges its rows; None where nothing is expected of them.
        lateness: what makes a row too late for it; None where no row is.
        late: the columns of its late table.
        state: the columns of the table of its open windows; None where its own rows are those.
    """

    name: str
    columns: StructType
    stored: pa.Schema
    keys: tuple[str, ...]
    aggregate: Aggregate | None
    fingerprint: str
    gate: Gate | None = None
    lateness: Lateness | None = None
    late: pa.Schema | None = None
    state: pa.Schema | None = None

    @property
    def appended(self) -> bool:
        """Whether its rows never change once they are there."""
        return not self.keys or self.state is not None


def analyse(spark: SparkSession, project: Project) -> dict[str, Analysed]:
    """Every table of the project, analysed, each after what it reads.

    Raises:
        ProjectError: a wrong column, a missing watermark, or what can't be done on a stream.
    """
    found: dict[str, Analysed] = {}
    for topic in project.topics.values():
        found[topic.name] = Analysed(
            topic.name, BRONZE, stored.schema(BRONZE), (), None, fingerprint(project, topic)
        )
    for table in project.tables.values():
        if table.flows:
            found |= _of_flows(spark, project, table, found)
        else:
            found[table.name] = _analyse(spark, project, table, found)
    return found


def _of_flows(
    spark: SparkSession, project: Project, table: Table, found: Mapping[str, Analysed]
) -> dict[str, Analysed]:
    """A table that several flows feed, and these: each by its own query, judged by the table's suite."""
    flows: dict[str, Analysed] = {}
    for flow in table.flows:
        one = _analyse(spark, project, flow, found, suite=table.name)
        if one.aggregate is not None:
            raise ProjectError(
                f"{flow.file}: {flow.name} aggregates; do that in a table that reads {table.name}"
            )
        first = next(iter(flows.values()), one)
        ours, theirs = ({f.name: f.dataType for f in each.columns} for each in (one, first))
        if ours != theirs:
            differ = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            raise ProjectError(
                f"{flow.file}: {flow.name} and {first.name} differ in {', '.join(differ)}; flows into one "
                "table have the same columns"
            )
        flows[flow.name] = replace(one, columns=first.columns, stored=first.stored)
    whole = replace(next(iter(flows.values())), name=table.name, fingerprint=fingerprint(project, table))
    return {**flows, table.name: whole}


def apply(spark: SparkSession, table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    """The definition, called with one DataFrame per source.

    Raises:
        ProjectError: the definition does not fit its sources.
    """
    where = f"{table.file}: {table.name}"
    try:
        if table.sql is None:
            result = table(*frames)
            if not isinstance(result, DataFrame):
                raise ProjectError(f"{where} returns {type(result).__name__}; return a DataFrame")
            return result
        views = {f"s{at}": f"`_{name}`" for at, name in enumerate(table.sources)}
        for name, frame in zip(table.sources, frames, strict=True):
            frame.createOrReplaceTempView(f"`_{name}`")
        if windows.NAME in table.sql.text.lower():
            windows.register(spark)
        return spark.sql(table.sql.text.format(**views))
    except AnalysisException as e:
        raise ProjectError(f"{where}: {_first_line(e)}; mend the definition") from None
    except (PySparkException, TypeError, AttributeError) as e:
        raise ProjectError(f"{where}: {type(e).__name__}: {_first_line(e)}; mend the definition") from e


def input_columns(project: Project, table: Table, source: Analysed) -> StructType:
    """What the function sees of its stream: the source's columns, or the decoder's."""
    if table.decode is None:
        return source.columns
    return decode.columns(decode.fields(table.decode, f"{table.file}: {table.name}"), BRONZE)


def fingerprint(project: Project, definition: Declaration) -> str:
    """A hash of what a definition and its suite say; comments and other definitions of its file aside.

    It needs no Spark session.
    """
    if isinstance(definition, Topic):
        text = definition.topic
    elif isinstance(definition, Table) and definition.sql is not None:
        text = f"{definition.sql.text} {definition.emit} {definition.allowed_lateness}"
    elif isinstance(definition, Table) and definition.flows:
        text = " ".join(flow.sql.text for flow in definition.flows if flow.sql)
    elif isinstance(definition, Table) and definition.function is not None:
        text = (
            f"{definition.decode} {definition.skew} {definition.emit} {definition.allowed_lateness} "
            f"{inspect.getsource(definition.function)}"
        )
    else:
        text = repr(definition)
    suite = project.suites.get(definition.name)
    rules = [asdict(replace(rule, where="")) for rule in suite.rules] if suite else []
    return hashlib.sha256(f"{text}{json.dumps(rules)}".encode()).hexdigest()[:16]


def _analyse(
    spark: SparkSession,
    project: Project,
    table: Table,
    found: Mapping[str, Analysed],
    suite: str | None = None,
) -> Analysed:
    where = f"{table.file}: {table.name}"
    frames, stream = [], None
    for name in table.sources:
        if name in project.references:
            columns = project.references[name].schema(spark)
        else:
            if not found[name].appended and not table.view:
                raise ProjectError(
                    f"{where} reads {name}, whose rows change in place; read it by a CREATE MATERIALIZED VIEW"
                )
            columns = input_columns(project, table, found[name])
        frames.append(spark.createDataFrame([], columns))
        stream = frames[-1] if name not in project.references else stream
    result = apply(spark, table, frames)
    _check_columns(result, where)
    _check_repeatable(result, where)
    if table.view:
        return _view(project, table, result)
    assert stream is not None
    maintained = aggregate.find(result, where)
    _check_row_by_row(result, stream, where)
    if maintained is None:
        if table.emit == "final" or table.allowed_lateness:
            what = "emit = 'final'" if table.emit == "final" else "allowed_lateness"
            raise ProjectError(f"{where} has {what} but no windows; leave it out, or GROUP BY window(…)")
        _check_keys(table, result)
        if table.decode and decode.SOURCE not in result.columns:
            raise ProjectError(
                f"{where} drops the column {decode.SOURCE}; keep it, it says where a row came from"
            )
        return Analysed(
            table.name,
            result.schema,
            stored.schema(result.schema),
            table.keys,
            None,
            fingerprint(project, table),
            _gate(project, table, result, suite or table.name),
        )
    if maintained.window and table.delay is None:
        raise ProjectError(
            f"{where} has windows but no watermark; say how late rows may be: in SQL after the stream, "
            "WATERMARK "
            "<column> DELAY OF INTERVAL 10 SECONDS; in Python event_time= and delay="
        )
    if table.decode is not None:
        raise ProjectError(
            f"{where} decodes and aggregates; decode in a silver table, which quarantines, and aggregate that"
        )
    if table.keys and set(table.keys) != set(maintained.keys):
        raise ProjectError(
            f"{where}: keys {table.keys} are not its GROUP BY {maintained.keys}; leave them out"
        )
    if table.name in project.suites:
        of_whole_table(project.suites[table.name])
    lateness = _lateness(table, maintained, result, stream)
    final = table.emit == "final"
    return Analysed(
        table.name,
        result.schema,
        stored.schema(result.schema) if final else aggregate.schema(result, where),
        maintained.keys,
        maintained,
        fingerprint(project, table),
        lateness=lateness,
        late=_late_columns(lateness, result, where) if lateness else None,
        state=aggregate.schema(result, where, bounds=True) if final else None,
    )


def _lateness(table: Table, maintained: Aggregate, result: DataFrame, stream: DataFrame) -> Lateness | None:
    """What makes a row too late for an aggregate."""
    where = f"{table.file}: {table.name}"
    if maintained.window == "session" and table.emit == "update":
        told = {output.window for output in maintained.outputs}
        if "all" not in told and not told >= {"start", "end"}:
            raise ProjectError(f"{where}: its sessions grow; add the session's start and end to its columns")
    if table.emit == "update" and table.allowed_lateness is None:
        return None
    if not maintained.window:
        raise ProjectError(f"{where} has no window of time, so no row of it is late; GROUP BY window(…)")
    if table.emit == "final" and table.allowed_lateness is not None:
        raise ProjectError(
            f"{where}: a final window is not corrected; leave allowed_lateness out and raise the delay, or "
            "write emit = 'update'"
        )
    assert table.event_time is not None and table.delay is not None
    rows = aggregate.rows(result, where)
    if table.event_time not in stream.columns:
        raise ProjectError(
            f"{where} tells the time by {table.event_time}, which {table.sources[0]} does not have; make it "
            "a column there"
        )
    for column in (table.event_time, decode.SOURCE, "ingested_at"):
        if column not in rows.columns:
            raise ProjectError(
                f"{where} aggregates rows without the column {column}; keep it, it tells which rows are late"
            )
    delay = microseconds(table.delay, table)
    if table.allowed_lateness is not None:
        delay += microseconds(table.allowed_lateness, table)
    return Lateness(table.event_time, delay, maintained.window == "session")


def _late_columns(lateness: Lateness, result: DataFrame, where: str) -> pa.Schema:
    found = lateness.late(lateness.marked(lateness.told(aggregate.rows(result, where), EventTime())))
    _check_columns(found, where)
    return stored.schema(found.schema)


def _view(project: Project, table: Table, result: DataFrame) -> Analysed:
    """A materialized view."""
    where = f"{table.file}: {table.name}"
    _check_keys(table, result)
    if GONE in result.columns:
        raise ProjectError(f"{where}: the engine has a column {GONE} of its own; rename it")
    keys = table.keys or tuple(result.columns)
    for key in keys:
        kind = result.schema[key].dataType
        if isinstance(kind, StructType | ArrayType | MapType):
            raise ProjectError(
                f"{where}: {key} is {kind.simpleString()}, which tells no rows apart; say in headwater.keys "
                "which columns do"
            )
    if table.name in project.suites:
        of_whole_table(project.suites[table.name])
    columns = stored.schema(result.schema)
    return Analysed(table.name, result.schema, columns, keys, None, fingerprint(project, table))


def _check_keys(table: Table, result: DataFrame) -> None:
    unknown = [key for key in table.keys if key not in result.columns]
    if unknown:
        raise ProjectError(
            f"{table.file}: {table.name}: key {unknown[0]} is no column of it; known: "
            f"{', '.join(result.columns)}"
        )


def _gate(project: Project, table: Table, result: DataFrame, of: str) -> Gate | None:
    """The gate of a table whose rows are appended, by the suite of the table `of`."""
    suite = project.suites.get(of, Suite(of, table.file))
    empty = result.sparkSession.createDataFrame([], result.schema)
    for rule in suite.rules:
        if rule.action == "quarantine" and table.decode is None:
            raise ProjectError(
                f"{rule.where}: {rule.id} quarantines rows of {table.name}, which has no raw records to "
                "keep; expect this of the table that decodes, or write another action"
            )
        if rule.scope == "table" or not predicate.knows(rule.type):
            continue
        try:
            _check_repeatable(empty.where(predicate.failed(rule, result.schema)), rule.where)
        except PySparkException as e:
            raise ProjectError(f"{rule.where}: {rule.id}: {_first_line(e)}; mend the suite") from None
    columns = sorted(_watermarks(project, table, result.columns))
    gate = Gate(suite, result.schema, [_future(table, result, columns)] if columns else [])
    told = [(one.rule, one.metrics) for one in gate.measures] + [(one.rule, ()) for one in gate.keyed]
    for rule, metrics in told:
        try:
            _check_repeatable(gate.judge(empty).agg(F.count("*"), *metrics), rule.where)
        except PySparkException as e:
            raise ProjectError(f"{rule.where}: {rule.id}: {_first_line(e)}; mend the suite") from None
    return gate if gate.rules or gate.measures else None


def _watermarks(project: Project, table: Table, columns: Sequence[str]) -> set[str]:
    """The columns of a table that decodes by which it, or a table below, tells the time."""
    if table.decode is None:
        return set()
    found, todo = {table.event_time}, [table.name]
    while todo:
        source = todo.pop()
        for below in project.tables.values():
            if source in below.sources:
                found.add(below.event_time)
                todo.append(below.name)
    return {column for column in found if column is not None and column in columns}


def _future(table: Table, result: DataFrame, columns: Sequence[str]) -> tuple[Rule, Column]:
    """A guard: an event time can't lie ahead of the time at which the record was read.

    One that does would move the watermark ahead, and all that is on time would be late.
    """
    where = f"{table.file}: {table.name}"
    if "ingested_at" not in result.columns:
        raise ProjectError(
            f"{where} drops the column ingested_at; keep it, it tells which {columns[0]} can't be"
        )
    rule = Rule(FUTURE_RULE, "event_time_not_in_the_future", {"column_list": columns}, "quarantine", where)
    latest = F.unix_micros(F.col("ingested_at")) + 1000 * interval(table.skew)
    times = [F.unix_micros(plans.named(column).cast("timestamp")) for column in columns]
    return rule, reduce(or_, [F.coalesce(at > latest, F.lit(False)) for at in times])


def _check_columns(result: DataFrame, where: str) -> None:
    lower = [name.lower() for name in result.columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise ProjectError(f"{where}: column {twice[0]} comes twice; rename or drop one")
    for field in result.schema:
        if "void" in field.dataType.simpleString():
            raise ProjectError(f"{where}: column {field.name} has no type; cast it")
        try:
            stored.schema(StructType([field]))
        except PySparkException:
            raise ProjectError(
                f"{where}: column {field.name} is {field.dataType.simpleString()}, which "
                "can't be stored; cast it"
            ) from None


def _check_repeatable(result: DataFrame, where: str) -> None:
    for node in plans.nodes(plans.analysed(result)):
        for expression in plans.expressions(node):
            name = plans.UNREPEATABLE.get(plans.kind(expression))
            if name is not None:
                raise ProjectError(
                    f"{where}: {name} differs when a batch is done again; use the column ingested_at"
                )
            if plans.kind(expression) != "AggregateExpression" and not expression.deterministic():
                raise ProjectError(
                    f"{where}: {expression.sql()} differs when a batch is done again; take it out"
                )


def _check_row_by_row(result: DataFrame, stream: DataFrame, where: str) -> None:
    """Each row, and each row that is aggregated, follows from one of the stream and from reference tables."""
    source = plans.analysed(stream)
    for node in plans.nodes(plans.analysed(result)):
        name = plans.kind(node)
        if any(_reads(subquery, source) for subquery in jvm.items(node.subqueries())):
            raise ProjectError(
                f"{where}: a subquery on the stream would see one batch at a time; leave it to a query"
            )
        if name in plans.ACROSS_ROWS:
            raise ProjectError(
                f"{where}: {plans.ACROSS_ROWS[name]} looks across rows, but would see one batch at a time; "
                "leave it to a query, or aggregate in a gold table"
            )
        if name == "Join":
            side = {"LeftOuter": "left", "LeftSemi": "left", "LeftAnti": "left", "RightOuter": "right"}
            kind = str(node.joinType().toString())
            keeps = side.get(kind, "none" if kind == "FullOuter" else "either")
            on_left, on_right = _reads(node.left(), source), _reads(node.right(), source)
            if on_left and on_right:
                raise ProjectError(
                    f"{where}: a join of the stream with itself would see one batch at a time; leave it to "
                    "a query"
                )
            if keeps == "none" or (keeps == "left" and not on_left) or (keeps == "right" and not on_right):
                raise ProjectError(
                    f"{where}: this {kind} join would repeat rows of a reference table in every batch; "
                    "keep the "
                    "rows of the stream: stream LEFT JOIN reference"
                )


def _reads(plan: Any, source: Any) -> bool:
    """Whether one of the leaves of a plan is the stream."""
    return any(bool(leaf.sameResult(source)) for leaf in jvm.items(plan.collectLeaves()))


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
