"""One definition, called with literal rows: what it makes of them, and what its table would not take."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headwater.common import arrow
from headwater.connectors.decode import SOURCE
from headwater.errors import HeadwaterError, ProjectError
from headwater.flows import bisect
from headwater.flows.applied import Applied as Definition
from headwater.flows.calls import fitted
from headwater.flows.context import Context
from headwater.flows.judged import FewJudged
from headwater.flows.references import References
from headwater.flows.rows import FewRows
from headwater.planner import analysis
from headwater.project.definitions import Table
from headwater.project.drive import drive
from headwater.quality.measure import Findings
from headwater.runtime import sessions
from headwater.testing.project import Project
from headwater.testing.records import Record, Value, bronze
from headwater.testing.rows import Row, table

Given = Iterable[Record | Value]


@dataclass(frozen=True)
class Applied:
    """What became of rows.

    Attributes:
        rows: those that the table would get.
        rejected: those that its quarantine would: the record, `reason`, `rules` and `row`.
    """

    rows: list[Row]
    rejected: list[Row] = field(default_factory=list)


def apply(project: Project, name: str, rows: Given | Mapping[str, Given]) -> Applied:
    """Call the definition of a table with rows of its source; nothing is written.

    Args:
        project: whose definitions they are; its lake and what lies there play no part.
        name: the table, or one of the flows into it.
        rows: of a table that decodes, records as `Project.send` takes them; else {column → value}. Of a view,
            a join or a process of several tables {table → rows}, tables that are read as they are too;
            reference tables are those that there are. With a lookup {table → rows, lookup → its answers}: it
            is asked itself where they are not given.

    Raises:
        FlowError: a row fails a rule whose action is `fail`.
        ProjectError: there is no such table, or a row does not fit its source.
        Exception: the definition fails, on no single record.
    """
    definition = _definition(project, name)
    sources = project.context.project.streams(definition)
    given: Mapping[str, Given] = rows if isinstance(rows, Mapping) else {sources[0]: rows}
    known = [*sources, *definition.snapshots, *([definition.lookup] if definition.lookup else [])]
    if unknown := [str(each) for each in given if each not in known]:
        raise ProjectError(
            f"{name} reads no {', '.join(unknown)}",
            code="TEST_ROW_INVALID",
            where=definition.where,
            hint=f"give a list of rows, or rows of {', '.join(known)}",
        )
    found = {each: _rows(project, definition, each, given.get(each, ())) for each in sources}
    if definition.process is not None:
        streams = {definition.stream(each).name: arrow.rows(rows) for each, rows in found.items()}
        made = drive(definition, streams).rows
        return Applied([*arrow.rows(fitted(made, project.tables[name].stored, definition.where, "gives"))])
    if definition.view:
        return _computed(project, definition, found)
    beside = {
        each: table(_plain(given.get(each, ())), project.tables[each].stored, each)
        for each in definition.snapshots
    }
    answers = given.get(definition.lookup) if definition.lookup else None
    return _judged(project, definition, found, beside, answers)


def _definition(project: Project, name: str) -> Table:
    tables = project.context.project.tables
    flows = {flow.name: flow for table in tables.values() for flow in table.flows}
    found = {**tables, **flows}.get(name)
    if found is None or found.flows:
        known = ", ".join(each for each, table in {**tables, **flows}.items() if not table.flows)
        raise ProjectError(
            f"{name} is no definition that can be called; known: {known}", code="UNKNOWN_TABLE", table=name
        )
    return found


def _plain(rows: Given) -> Iterable[Row]:
    for row in rows:
        if not isinstance(row, Mapping):
            raise ProjectError(
                f"rows of a table are written as {{column: value}}, not as {row!r}", code="TEST_ROW_INVALID"
            )
        yield row


def _rows(project: Project, definition: Table, source: str, rows: Given) -> pa.Table:
    context = project.context
    if definition.decode is None:
        found = table(_plain(rows), context.tables[source].stored, source)
        return _placed(found) if definition.lookup else found
    raw = context.project.raw[source]
    cluster, now = context.project.conf.cluster, project.clock.now()
    return bronze(rows, topic=raw.topic, cluster=cluster, now=now, ends={}).rows


def _placed(rows: pa.Table) -> pa.Table:
    """The rows, those that do not say where they came from as records of one partition, in their order."""
    places = [
        each or {"cluster": "test", "topic": "test", "partition": 0, "offset": at}
        for at, each in enumerate(rows[SOURCE].to_pylist())
    ]
    field = rows.schema.field(SOURCE)
    return rows.set_column(rows.schema.get_field_index(SOURCE), field, pa.array(places, field.type))


def _answering(context: Context, definition: Table, answers: Given | None) -> Context:
    """The run, in which a table's lookup gives these answers."""
    if answers is None:
        return context
    known, name = [*_plain(answers)], definition.lookup
    lookups = {**context.project.lookups}
    lookups[name] = dataclasses.replace(lookups[name], fetch=lambda keys: known)
    return dataclasses.replace(context, project=dataclasses.replace(context.project, lookups=lookups))


def _judged(
    project: Project,
    definition: Table,
    given: Mapping[str, pa.Table],
    beside: Mapping[str, pa.Table],
    answers: Given | None,
) -> Applied:
    """What a batch of these rows would become, beside tables that are read as they are."""
    context = _answering(project.context, definition, answers)
    applied = Definition(context, definition)
    for name, rows_of in beside.items():
        applied.references.give(name, rows_of)
    versions = applied.references.pinnable()
    work = applied.work(versions, None, applied.answers(None, context.clock()))
    if applied.analysed.joins is not None:
        tables = project.context.tables
        streams = {name: applied.given(rows, tables[name].columns) for name, rows in given.items()}
        joined = FewJudged(work, applied.few([streams], versions), sum(map(len, given.values())))
        passed = joined.passed()
        if work.gate is not None:
            work.gate.enforce(joined.counts().tally, Findings(), 0)
        return Applied(passed.to_pylist())
    (rows,) = given.values()
    try:
        batch = FewRows(work, rows)
        passed = batch.passed()
    except HeadwaterError:
        raise
    except Exception as e:
        if definition.decode is None or definition.on_error == "stop":
            raise
        batch = FewRows(work, rows, bisect.broken(work, [rows], e, threading.Event(), most=None))
        passed = batch.passed()
    counts = batch.counts()
    if work.gate is not None:
        work.gate.enforce(counts.tally, Findings(), 0)
    rejected = batch.held(project.context.clock()).to_pylist() if counts.held else []
    return Applied(passed.to_pylist(), rejected)


def _computed(project: Project, definition: Table, given: Mapping[str, pa.Table]) -> Applied:
    """What a view over these rows is."""
    context = project.context
    spark = sessions.child(context.spark, parallelism=1)
    references = References(context, definition, spark)
    versions = references.pinnable()

    def frame(source: str) -> DataFrame:
        if source in references:
            return references.read(source, versions[source])
        return spark.createDataFrame(_whole(given[source]), context.tables[source].columns)

    frames: Sequence[Any] = [frame(source) for source in definition.sources]
    return Applied(analysis.apply(spark, definition, frames).toArrow().to_pylist())


def _whole(rows: pa.Table) -> pa.Table:
    return rows if len(rows) else rows.schema.empty_table()  # Spark wants a chunk of each column
