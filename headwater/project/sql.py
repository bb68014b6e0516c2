"""SQL definitions, read by Spark's own parser: `CREATE STREAMING TABLE … AS SELECT … FROM STREAM t`,
`CREATE MATERIALIZED VIEW … AS SELECT … FROM t`, and `CREATE STREAMING TABLE …` with several
`CREATE FLOW … AS INSERT INTO … BY NAME SELECT … FROM STREAM t`.

Nothing here knows SQL's grammar: Spark's parser gives a tree whose nodes know where in the text they
stand, and the sources are replaced at those places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.errors import ProjectError
from headwater.errors.causes import first_line
from headwater.project.definitions import Query, Table
from headwater.project.naming import defined
from headwater.project.properties import from_properties
from headwater.runtime import cache, catalyst, jvm

_TABLE = "CreateStreamingTableAsSelect"
_VIEW = "CreateMaterializedViewAsSelect"
_FED = "CreateStreamingTable"  # by flows
_FLOW = "CreateFlowCommand"


@dataclass(frozen=True)
class _Relation:
    """A source's place in the text: `[start, stop)`, and the name by which the query calls it."""

    table: str
    stream: bool
    start: int
    stop: int
    alias: str | None

    def replacement(self, view: str) -> str:
        """What stands in the text instead; the span of a stream takes in its alias, that of a table not."""
        own = self.table.rsplit(".", 1)[-1]
        if self.stream or self.alias is None:
            return f"{view} AS `{self.alias or own}`"
        return view


@dataclass(frozen=True)
class _Statement:
    """What the text of a definition says.

    Attributes:
        kind: the class that Spark's parser has for it.
        name, comment: of the table or the flow; of another statement, "".
        properties: the table's properties.
        query: the text of its query; "": it has none.
        relations: what the query reads, in the order of the text.
        watermark: the column of event time and the delay.
        into: the table that a flow feeds.
        by_name: whether the flow does so by the names of columns.
    """

    kind: str
    name: str = ""
    comment: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    query: str = ""
    relations: tuple[_Relation, ...] = ()
    watermark: tuple[str, str] | tuple[None, None] = (None, None)
    into: str | None = None
    by_name: bool = True


def parse(path: Path, layer: str) -> Table:
    """The table that the SQL file `path` declares, in the folder `layer`.

    Raises:
        ProjectError: not SQL, or another statement than these.
    """
    try:
        text = path.read_text(encoding="utf-8").strip().rstrip(";")
    except UnicodeDecodeError:
        raise ProjectError(
            f"{path}: this is no text in UTF-8", code="SQL_INVALID", file=path, hint="save it as such"
        ) from None
    try:
        statement = _statement(text)
    except (Py4JJavaError, PySparkException) as e:
        raise ProjectError(
            f"{path}: {first_line(e)}", code="SQL_INVALID", file=path, hint="mend the statement"
        ) from None
    if statement.kind not in (_TABLE, _VIEW, _FED, _FLOW):
        raise ProjectError(
            f"{path}: a {statement.kind} statement is not supported",
            code="STATEMENT_NOT_SUPPORTED",
            file=path,
            hint="write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW … AS SELECT …, or CREATE FLOW … "
            "AS INSERT INTO …",
        )
    if not statement.by_name:
        raise ProjectError(
            f"{path}: {statement.name} inserts by position",
            code="INSERT_BY_POSITION",
            table=statement.name,
            file=path,
            hint="write INSERT INTO … BY NAME SELECT …",
        )
    table = Table(
        name=defined(statement.name, layer),
        file=path,
        comment=statement.comment,
        sources=(),
        into=statement.into,
        view=statement.kind == _VIEW,
    )
    if statement.kind != _FED:
        table = _reading(table, text, statement)
    return table if statement.kind == _FLOW else from_properties(table, dict(statement.properties))


def select(text: str) -> Table:
    """A table without a name that a SELECT gives the rows of, as a function of Python runs it.

    Raises:
        ValueError: the text is no query.
    """
    try:
        return _reading(Table(sources=()), text, _selected(text))
    except (Py4JJavaError, PySparkException) as e:
        raise ValueError(first_line(e)) from None


@cache.kept
def _selected(text: str) -> _Statement:
    """What a query says."""
    plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parseQuery(text)
    return _with_sources(_Statement("", query=text), plan)


@cache.kept
def _statement(text: str) -> _Statement:
    """What a text says."""
    plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(text)
    kind = catalyst.kind(plan)
    if kind not in (_TABLE, _VIEW, _FED, _FLOW):
        return _Statement(kind)
    name = ".".join(jvm.items(plan.name().nameParts()))
    if kind == _FLOW:
        insert, comment = plan.flowOperation(), _text(plan.comment())
        at, by_name = insert.query().origin(), bool(insert.byName())
        query = text[int(at.startIndex().get()) : int(at.stopIndex().get()) + 1]
        into = ".".join(jvm.items(insert.table().multipartIdentifier()))
        found = _Statement(kind, name, comment, query=query, into=into, by_name=by_name)
        return _with_sources(found, insert.query())
    properties = tuple(jvm.mapping(plan.tableSpec().properties()).items())
    found = _Statement(kind, name, _text(plan.tableSpec().comment()), properties)
    if kind == _FED:
        return found
    return _with_sources(replace(found, query=str(plan.originalText())), plan.query())


def _with_sources(statement: _Statement, query: Any) -> _Statement:
    relations = sorted(_relations(query), key=lambda r: r.start)
    watermark = next(_watermarks(query), (None, None))
    return replace(statement, relations=tuple(relations), watermark=watermark)


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""


def _reading(table: Table, text: str, statement: _Statement) -> Table:
    """The table with what its query reads."""
    relations = statement.relations
    streams = tuple(dict.fromkeys(r.table for r in relations if r.stream))
    sources = streams + tuple(s for s in dict.fromkeys(r.table for r in relations) if s not in streams)
    event_time, delay = statement.watermark
    read = Query(text=_template(text, statement.query, relations, sources), streams=streams)
    return replace(table, sources=sources, sql=read, event_time=event_time, delay=delay)


def _relations(
    node: Any, alias: str | None = None, hidden: frozenset[str] = frozenset()
) -> Iterator[_Relation]:
    """The sources below a node, but for the names (in lower case) that a WITH clause above gives."""
    kind = catalyst.kind(node)
    if kind == "UnresolvedRelation":
        start, stop = (int(at.get()) for at in (node.origin().startIndex(), node.origin().stopIndex()))
        name = ".".join(jvm.items(node.multipartIdentifier()))
        relation = _Relation(name, bool(node.isStreaming()), start, stop + 1, alias)
        if relation.table.lower() not in hidden:
            yield relation
    if kind == "UnresolvedWith":
        for given in jvm.items(node.cteRelations()):
            yield from _relations(given._2(), None, hidden)
            hidden |= {str(given._1()).lower()}
    inherited = alias if kind == "NamedStreamingRelation" else None
    below = str(node.alias()) if kind == "SubqueryAlias" else inherited
    for child in jvm.items(node.children()):
        yield from _relations(child, below, hidden)
    for plan in jvm.items(node.subqueries()):
        yield from _relations(plan, None, hidden)


def _watermarks(node: Any) -> Iterator[tuple[str, str]]:
    kind = catalyst.kind(node)
    if kind == "UnresolvedEventTimeWatermark":
        yield node.eventTimeColExpr().sql().replace("`", ""), node.delay().toString()
    if kind == "UnresolvedWith":
        for given in jvm.items(node.cteRelations()):
            yield from _watermarks(given._2())
    for child in jvm.items(node.children()):
        yield from _watermarks(child)


def _template(text: str, query: str, relations: tuple[_Relation, ...], sources: tuple[str, ...]) -> str:
    begin = text.rindex(query)
    parts, at = [], begin
    for relation in relations:
        parts.append(text[at : relation.start].replace("{", "{{").replace("}", "}}"))
        parts.append(relation.replacement(f"{{s{sources.index(relation.table)}}}"))
        at = relation.stop
    parts.append(text[at:].replace("{", "{{").replace("}", "}}"))
    return "".join(parts)
