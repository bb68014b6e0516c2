"""SQL definitions: text of Spark Declarative Pipelines and of Lakeflow, as docs/sdp.md says.

A file has any number of statements: `CREATE STREAMING TABLE`, `CREATE MATERIALIZED VIEW`, `CREATE FLOW`,
`CREATE TEMPORARY VIEW`, `APPLY CHANGES INTO`. A tokenizer splits them (`statements`) and finds what Spark's
grammar lacks (`clauses`, `changes`), which is read from its tokens and overwritten by spaces. All else
Spark's own parser reads (`parser`), and since nothing moves, what it says of a place is true of the file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.errors import ProjectError, Where
from headwater.errors.several import Collected
from headwater.project.definitions import Declaration, Query, Table, Topic, View
from headwater.project.naming import defined
from headwater.project.properties import from_properties, topic_limits
from headwater.project.rule import expected
from headwater.project.sql.said import Refused, Statement
from headwater.runtime import cache


def parse(path: Path, layer: str) -> list[Declaration]:
    """What the SQL file `path` declares, in the folder `layer`: tables, flows and views.

    Raises:
        ProjectError: not SQL, or another statement than these; it has the line. Of several statements that
            are wrong by themselves, `SeveralErrors`.
    """
    wrong, declared = Collected(), list[Declaration]()
    try:
        found = _said(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ProjectError(
            f"{path}: this is no text in UTF-8", code="SQL_INVALID", file=path, hint="save it as such"
        ) from None
    except ExceptionGroup as refused:
        for e in refused.exceptions:
            assert isinstance(e, Refused)
            place = f"{path}:{e.line}" if e.line else f"{path}"
            wrong.add(
                ProjectError(f"{place}: {e.message}", code=e.code, table=e.table, file=path, hint=e.hint)
            )
        found = ()
    for statement in found:
        with wrong.each():
            declared.append(_declared(statement, path, layer))
    wrong.check()
    return declared


@cache.kept
def select(text: str) -> Statement:
    """What a SELECT reads that a function of Python runs.

    Raises:
        Refused: the text is no query, or several.
    """
    from headwater.project.sql import clauses, parser, statements

    first, *more = statements.split(text)
    if more:
        raise Refused("there are several statements", "SQL_INVALID", hint="write one SELECT")
    return parser.query(clauses.taken(text, first))


@cache.kept
def _said(text: str) -> tuple[Statement, ...]:
    """What a file's text says.

    Raises:
        ExceptionGroup: of `Refused`, one for each statement that is none.
    """
    from headwater.project.sql import clauses, parser, statements  # the tokenizer takes long to import

    said, refused = list[Statement](), list[Refused]()
    try:
        texts = list(statements.split(text))
    except Refused as e:
        raise ExceptionGroup("no statements", [e]) from None
    for tokens in texts:
        try:
            said.append(parser.read(clauses.taken(text, tokens)))
        except Refused as e:
            refused.append(e)
    if refused:
        raise ExceptionGroup("statements that are none", refused)
    return tuple(said)


def _declared(said: Statement, path: Path, layer: str) -> Declaration:
    name = defined(said.name, layer)
    one = Declaration(name=name, file=path, line=said.line, comment=said.comment)
    if not name.startswith(f"{layer}."):
        raise ProjectError(
            f"{one.where} is in folder {layer}",
            code="WRONG_FOLDER",
            where=one.where,
            hint=f"name it {layer}.<name>",
        )
    if said.kafka is not None:
        return _topic(said, one)
    query = None
    if said.template:
        query = Query(text=said.template, streams=said.streams, line=said.at[0], column=said.at[1])
    waits = len(said.streams) > 1 and dict(said.properties).get("headwater.emit") == "final"
    outer = said.kind == "streaming table" and said.outer and not waits
    told = {} if outer else {each.stream: each for each in reversed(said.watermarks)}
    ordered = [told[stream] for stream in said.streams if stream in told] or [*told.values()]
    event_time, delay = (ordered[0].column, ordered[0].delay) if ordered else (None, None)
    if said.kind == "view":
        return View(sources=said.sources, sql=query, event_time=event_time, delay=delay, **vars(one))
    table = Table(
        sources=said.sources,
        sql=query,
        event_time=event_time,
        event_times={each.stream: each.column for each in ordered} if waits else {},
        delay=delay,
        into=said.into,
        once=said.once,
        view=outer or said.kind == "materialized view",
        corrected=outer,
        cdc=said.cdc,
        **vars(one),
    )
    if said.kind == "flow":
        return table
    delays = {each.stream: each.delay for each in ordered}
    if waits and len({*delays.values()}) > 1:
        raise ProjectError(
            f"{one.where} says of its streams different delays: {delays}",
            code="DELAYS_DIFFER",
            where=one.where,
            hint="give all the longest: rows wait until all streams have come as far",
        )
    table = from_properties(table, dict(said.properties))
    if table.decode is not None and ((query is None and table.cdc is None) or table.view):
        raise ProjectError(
            f"{one.where} decodes, and has no query of a stream",
            code="PROPERTY_INVALID",
            where=one.where,
            hint="decode in a table of its own: CREATE STREAMING TABLE … AS SELECT … FROM STREAM …",
        )
    rules = [
        expected(each.name, each.condition, each.action, Where.of(path, name, each.line))
        for each in said.expectations
    ]
    return replace(table, expectations=tuple(rules))


def _topic(said: Statement, one: Declaration) -> Topic:
    assert said.kafka is not None
    if not one.name.startswith("bronze."):
        raise ProjectError(
            f"{one.where} reads Kafka",
            code="WRONG_FOLDER",
            where=one.where,
            hint="what does is a table of bronze/: move the statement there, and read that table",
        )
    limits = topic_limits(one.where, dict(said.properties))
    return Topic(topic=said.kafka.topic, servers=said.kafka.servers, limits=limits, **vars(one))
