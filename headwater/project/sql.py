"""SQL definitions, read by Spark's own parser: `CREATE STREAMING TABLE … AS SELECT … FROM STREAM t`,
`CREATE MATERIALIZED VIEW … AS SELECT … FROM t`, and `CREATE STREAMING TABLE …` with several
`CREATE FLOW … AS INSERT INTO … BY NAME SELECT … FROM STREAM t`.

Nothing here knows SQL's grammar: Spark's parser gives a tree whose nodes know where in the text they
stand, and the sources are replaced at those places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.errors import ProjectError
from headwater.project.definitions import Query, Table
from headwater.project.properties import from_properties
from headwater.runtime import jvm

_VIEW = "CreateMaterializedViewAsSelect"
_FED = "CreateStreamingTable"  # by flows
_FLOW = "CreateFlowCommand"


def parse(path: Path) -> Table:
    """The table that the SQL file `path` declares.

    Raises:
        ProjectError: not SQL, or another statement than these.
    """
    text = path.read_text(encoding="utf-8").strip().rstrip(";")
    try:
        plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(text)
    except (Py4JJavaError, PySparkException) as e:
        raise ProjectError(
            f"{path}: {jvm.first_line(e)}", code="SQL_INVALID", file=path, hint="mend the statement"
        ) from None
    statement = plan.getClass().getSimpleName()
    if statement == _FLOW:
        return _flow(path, text, plan)
    if statement not in ("CreateStreamingTableAsSelect", _VIEW, _FED):
        raise ProjectError(
            f"{path}: a {statement} statement is not supported",
            code="STATEMENT_NOT_SUPPORTED",
            file=path,
            hint="write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW … AS SELECT …, or CREATE FLOW … "
            "AS INSERT INTO …",
        )
    name = ".".join(jvm.items(plan.name().nameParts()))
    table = Table(name=name, file=path, comment=_text(plan.tableSpec().comment()), sources=())
    if statement != _FED:
        table = _reading(table, text, plan.query(), plan.originalText())
        table = replace(table, view=statement == _VIEW)
    return from_properties(table, jvm.mapping(plan.tableSpec().properties()))


def _flow(path: Path, text: str, plan: Any) -> Table:
    """One of several flows into a table."""
    name, insert = ".".join(jvm.items(plan.name().nameParts())), plan.flowOperation()
    if not insert.byName():
        raise ProjectError(
            f"{path}: {name} inserts by position",
            code="INSERT_BY_POSITION",
            table=name,
            file=path,
            hint="write INSERT INTO … BY NAME SELECT …",
        )
    into = ".".join(jvm.items(insert.table().multipartIdentifier()))
    at = insert.query().origin()
    query = text[int(at.startIndex().get()) : int(at.stopIndex().get()) + 1]
    flow = Table(name=name, file=path, comment=_text(plan.comment()), sources=(), into=into)
    return _reading(flow, text, insert.query(), query)


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""


def _reading(table: Table, text: str, plan: Any, query: str) -> Table:
    """The table with what its query reads."""
    relations = sorted(_relations(plan), key=lambda r: r.start)
    streams = tuple(dict.fromkeys(r.table for r in relations if r.stream))
    sources = streams + tuple(s for s in dict.fromkeys(r.table for r in relations) if s not in streams)
    event_time, delay = next(_watermarks(plan), (None, None))
    read = Query(text=_template(text, query, relations, sources), streams=streams)
    return replace(table, sources=sources, sql=read, event_time=event_time, delay=delay)


class _Relation:
    """A source's place in the text: `[start, stop)`, and the name by which the query calls it."""

    def __init__(self, node: Any, alias: str | None) -> None:
        self.table = ".".join(jvm.items(node.multipartIdentifier()))
        self.stream = bool(node.isStreaming())
        self.start = int(node.origin().startIndex().get())
        self.stop = int(node.origin().stopIndex().get()) + 1
        self.alias = alias

    def replacement(self, view: str) -> str:
        """What stands in the text instead; the span of a stream takes in its alias, that of a table not."""
        own = self.table.rsplit(".", 1)[-1]
        if self.stream or self.alias is None:
            return f"{view} AS `{self.alias or own}`"
        return view


def _relations(
    node: Any, alias: str | None = None, hidden: frozenset[str] = frozenset()
) -> Iterator[_Relation]:
    """The sources below a node, but for the names (in lower case) that a WITH clause above gives."""
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedRelation":
        relation = _Relation(node, alias)
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
    if node.getClass().getSimpleName() == "UnresolvedEventTimeWatermark":
        yield node.eventTimeColExpr().sql().replace("`", ""), node.delay().toString()
    if node.getClass().getSimpleName() == "UnresolvedWith":
        for given in jvm.items(node.cteRelations()):
            yield from _watermarks(given._2())
    for child in jvm.items(node.children()):
        yield from _watermarks(child)


def _template(text: str, query: str, relations: list[_Relation], sources: tuple[str, ...]) -> str:
    begin = text.rindex(query)
    parts, at = [], begin
    for relation in relations:
        parts.append(text[at : relation.start].replace("{", "{{").replace("}", "}}"))
        parts.append(relation.replacement(f"{{s{sources.index(relation.table)}}}"))
        at = relation.stop
    parts.append(text[at:].replace("{", "{{").replace("}", "}}"))
    return "".join(parts)
