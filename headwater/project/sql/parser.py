"""A statement as Spark's own parser sees it.

Nothing here knows SQL's grammar: the parser gives a tree whose nodes know where in the text they stand, and
the sources are replaced at those places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.errors.causes import first_line
from headwater.project.cdc.said import flow_name
from headwater.project.sql import clauses
from headwater.project.sql.said import Changes, Kind, Refused, Statement, Taken, Watermark
from headwater.runtime import catalyst, jvm

_KINDS: dict[str, Kind] = {
    "CreateStreamingTableAsSelect": "streaming table",
    "CreateStreamingTable": "streaming table",  # by flows
    "CreateMaterializedViewAsSelect": "materialized view",
    "CreateFlowCommand": "flow",
    "CreateViewCommand": "view",
}


_OF_TIME = "write FOR SYSTEM_TIME AS OF, of a table with a history"


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


def read(taken: Taken) -> Statement:
    """What a statement says.

    Raises:
        Refused: not SQL, or a statement that declares nothing here.
    """
    changes = taken.changes
    if changes is not None and changes.into:
        return _of_changes(changes)
    try:
        plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(taken.text)
        return _read(plan, taken)
    except (Py4JJavaError, PySparkException) as e:
        said = first_line(e)
        hint = _OF_TIME if said.startswith("Invalid time travel") else "mend the statement"
        raise Refused(said, "SQL_INVALID", line=taken.line, hint=hint) from None


def query(taken: Taken) -> Statement:
    """What a SELECT says that stands in no definition.

    Raises:
        Refused: it is none.
    """
    try:
        plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parseQuery(taken.text)
    except (Py4JJavaError, PySparkException) as e:
        raise Refused(first_line(e), "SQL_INVALID", line=taken.line, hint="write one SELECT") from None
    return _with_query(Statement("view", "", "", taken.line), plan, taken.text.strip(), taken)


def _read(plan: Any, taken: Taken) -> Statement:
    kind = _KINDS.get(catalyst.kind(plan))
    if kind is None:
        raise clauses.other(taken.line, catalyst.kind(plan))
    if kind == "flow":
        return _flow(plan, taken)
    if kind == "view":
        return _view(plan, taken)
    found = Statement(
        kind,
        ".".join(jvm.items(plan.name().nameParts())),
        _text(plan.tableSpec().comment()),
        taken.line,
        properties=tuple(jvm.mapping(plan.tableSpec().properties()).items()),
        expectations=taken.expectations,
        kafka=taken.kafka,
    )
    if catalyst.kind(plan) == "CreateStreamingTable":
        changes = taken.changes
        if changes is None:
            return found
        return replace(found, sources=(changes.source,), cdc=changes.cdc, once=changes.once)
    return _with_query(found, plan.query(), str(plan.originalText()), taken)


def _of_changes(changes: Changes) -> Statement:
    """A flow of changes; one that has no name is called by what it reads and feeds."""
    return Statement(
        "flow",
        changes.name or flow_name(changes.source, changes.into),
        changes.comment,
        changes.cdc.line,
        sources=(changes.source,),
        into=changes.into,
        once=changes.once,
        cdc=changes.cdc,
    )


def _flow(plan: Any, taken: Taken) -> Statement:
    insert, name = plan.flowOperation(), ".".join(jvm.items(plan.name().nameParts()))
    if catalyst.kind(insert) != "InsertIntoStatement":
        raise clauses.other(taken.line, catalyst.kind(insert))
    if insert.overwrite() or not insert.partitionSpec().isEmpty():
        raise Refused(
            f"{name} overwrites rows", "STATEMENT_NOT_SUPPORTED", line=taken.line, hint="write INSERT INTO"
        )
    if not insert.userSpecifiedCols().isEmpty():
        raise Refused(
            f"{name} inserts by position",
            "INSERT_BY_POSITION",
            line=taken.line,
            table=name,
            hint="write INSERT INTO … BY NAME SELECT …, each column AS its name",
        )
    query = catalyst.text_of(insert.query())
    into = ".".join(jvm.items(insert.table().multipartIdentifier()))
    found = Statement("flow", name, _text(plan.comment()), taken.line, into=into, once=taken.once)
    found = _with_query(found, insert.query(), query, taken)
    return replace(found, streams=found.streams or found.sources) if taken.once else found


def _view(plan: Any, taken: Taken) -> Statement:
    name = str(plan.name().table())
    if taken.expectations or not plan.userSpecifiedColumns().isEmpty():
        what = "expectations" if taken.expectations else "a list of columns"
        raise Refused(
            f"{name} is kept nowhere, and has {what}",
            "STATEMENT_NOT_SUPPORTED",
            line=taken.line,
            table=name,
            hint="name columns in its query, and expect it of a table that reads it",
        )
    found = Statement("view", name, _text(plan.comment()), taken.line)
    return _with_query(found, plan.plan(), str(plan.originalText().get()), taken)


def _with_query(statement: Statement, query: Any, text: str, taken: Taken) -> Statement:
    relations = sorted(_relations(query), key=lambda r: r.start)
    streams = tuple(dict.fromkeys(r.table for r in relations if r.stream))
    _check_read_one_way(statement.name, relations, streams, taken.text)
    sources = (*streams, *(s for s in dict.fromkeys(r.table for r in relations) if s not in streams))
    begin = taken.text.rindex(text)
    before = taken.text[:begin]
    return replace(
        statement,
        template=_template(taken.text.rstrip(), begin, relations, sources),
        at=(before.count("\n"), begin - before.rfind("\n") - 1),
        sources=sources,
        streams=streams,
        outer=len(streams) > 1 and _is_outer(query),
        watermarks=tuple(_watermarks(query)),
    )


def _check_read_one_way(name: str, relations: list[_Relation], streams: tuple[str, ...], text: str) -> None:
    for relation in relations:
        if not relation.stream and relation.table in streams:
            raise Refused(
                f"{name} reads {relation.table} by STREAM, and here as a table",
                "STREAM_MISSING",
                line=text.count("\n", 0, relation.start) + 1,
                table=name,
                hint="write FROM STREAM here, too; or CREATE MATERIALIZED VIEW, without STREAM",
            )


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""


def _relations(
    node: Any, alias: str | None = None, hidden: frozenset[str] = frozenset()
) -> Iterator[_Relation]:
    """The sources below a node, but for the names (in lower case) that a WITH clause above gives."""
    kind = catalyst.kind(node)
    if kind == "UnresolvedRelation":
        start, stop = (int(at.get()) for at in (node.origin().startIndex(), node.origin().stopIndex()))
        name = ".".join(jvm.items(node.multipartIdentifier()))
        if not node.options().isEmpty():
            raise _refused(node, f"{name} is read with options", "leave WITH (…) behind it out")
        relation = _Relation(name, bool(node.isStreaming()), start, stop + 1, alias)
        if relation.table.lower() not in hidden:
            yield relation
    if kind == "Sample":
        raise _refused(
            node, "TABLESAMPLE takes other rows each time", "filter: WHERE pmod(hash(key), 20) = 0"
        )
    if kind == "UnresolvedWith":
        if node.allowRecursion():
            raise _refused(
                node, "WITH RECURSIVE is not supported", "leave it out: a table does not follow from itself"
            )
        for given in jvm.items(node.cteRelations()):
            yield from _relations(given._2(), None, hidden)
            hidden |= {str(given._1()).lower()}
    inherited = alias if kind == "NamedStreamingRelation" else None
    below = str(node.alias()) if kind == "SubqueryAlias" else inherited
    for child in jvm.items(node.children()):
        yield from _relations(child, below, hidden)
    for plan in jvm.items(node.subqueries()):
        yield from _relations(plan, None, hidden)


def _refused(node: Any, what: str, hint: str) -> Refused:
    line = node.origin().line()
    return Refused(
        what, "STATEMENT_NOT_SUPPORTED", line=int(line.get()) if line.isDefined() else 1, hint=hint
    )


def _is_outer(node: Any, named: frozenset[str] = frozenset()) -> bool:
    """Whether a query joins streams by more than an inner join; `named` are names that WITH clauses above it
    give to queries of streams."""
    if catalyst.kind(node) == "UnresolvedWith":
        for given in jvm.items(node.cteRelations()):
            if _is_outer(given._2(), named):
                return True
            named |= {str(given._1()).lower()} if _is_streaming(given._2(), named) else frozenset()
    if catalyst.kind(node) == "Join" and not str(node.joinType().sql()).endswith(("INNER", "CROSS")):
        both = (node.left(), node.right())
        if all(_is_streaming(side, named) for side in both):
            return True
    return any(_is_outer(child, named) for child in jvm.items(node.children()))


def _is_streaming(node: Any, named: frozenset[str]) -> bool:
    """Whether a part of a query reads a stream."""
    if catalyst.kind(node) == "UnresolvedRelation":
        parts = jvm.items(node.multipartIdentifier())
        return bool(node.isStreaming()) or ".".join(parts).lower() in named
    return any(_is_streaming(child, named) for child in jvm.items(node.children()))


def _watermarks(node: Any) -> Iterator[Watermark]:
    kind = catalyst.kind(node)
    if kind == "UnresolvedEventTimeWatermark":
        column = str(node.eventTimeColExpr().sql()).replace("`", "")
        stream = next((each.table for each in _relations(node)), "")
        yield Watermark(stream, column, str(node.delay().toString()))
    if kind == "UnresolvedWith":
        for given in jvm.items(node.cteRelations()):
            yield from _watermarks(given._2())
    for child in jvm.items(node.children()):
        yield from _watermarks(child)


def _template(text: str, begin: int, relations: list[_Relation], sources: tuple[str, ...]) -> str:
    """The query from `begin` on, a field for each source; as many lines as it has in the text."""
    parts, at = [], begin
    for relation in relations:
        parts.append(text[at : relation.start].replace("{", "{{").replace("}", "}}"))
        lines = text.count("\n", relation.start, relation.stop)
        parts.append(relation.replacement(f"{{s{sources.index(relation.table)}}}") + "\n" * lines)
        at = relation.stop
    parts.append(text[at:].replace("{", "{{").replace("}", "}}"))
    return "".join(parts)
