"""From what a file has said to `pyspark.pipelines` to declarations: each function is called once, with
stand-ins, and shows what it reads."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.errors import ProjectError, Where
from headwater.errors.causes import describe, raised_at
from headwater.errors.several import Collected
from headwater.project.definitions import Declaration, Table, Topic, View
from headwater.project.naming import defined
from headwater.project.pipelines import kafka
from headwater.project.pipelines.reading import KAFKA, Given, Recording, begun
from headwater.project.pipelines.registry import Function, Output
from headwater.project.pipelines.stand_in import StandIn
from headwater.project.properties import from_properties, topic_limits
from headwater.runtime import jvm


def declarations(outputs: Iterable[Output], file: Path, layer: str) -> list[Declaration]:
    """What a file declares.

    Args:
        outputs: what it has said.
        file: the file.
        layer: its folder.

    Raises:
        ProjectError: a function does what can't be done here, or reads what it can't; of several
            errors, `SeveralErrors`.
    """
    wrong, found = Collected(), list[Declaration]()
    for output in outputs:
        name = defined(output.name, layer)
        with wrong.each():
            found += _declared(output, Where.of(file, name, output.at.line), file, layer)
    wrong.check()
    return found


def with_topics(declared: Sequence[Declaration]) -> list[Declaration]:
    """The same with a bronze table for each topic that functions read: what is declared, else its own."""
    rest, found = list[Declaration](), dict[str, Topic]()
    servers = {one.topic: one.servers for one in declared if isinstance(one, _Read)}
    for one in declared:
        if isinstance(one, Topic) and not isinstance(one, _Read):
            one = replace(one, servers=one.servers or servers.get(one.topic, ""))
            found.setdefault(one.topic, one)
        if not isinstance(one, _Read):
            rest.append(one)
    own = {one.topic: one for one in declared if isinstance(one, _Read) and one.topic not in found}
    taken = {one.name for one in rest}
    for topic, one in own.items():
        if one.name in taken:  # by what transforms its records, most likely
            own[topic] = replace(one, name=f"{one.name}_records")
    names = {f"{KAFKA}{topic}": table.name for topic, table in {**own, **found}.items()}
    return [*own.values(), *(_renamed(one, names) for one in rest)]


def is_of_pipeline(function: Any) -> bool:
    """Whether a definition's function was declared by `pyspark.pipelines`."""
    return hasattr(function, "settings")


def text_of(function: Any, source: Callable[[Any], str] = inspect.getsource) -> str:
    """The text of a definition's function, and the plain values that one of a pipeline was made with.

    Args:
        function: of a definition.
        source: gives the text of a function.
    """
    own = inspect.unwrap(function)
    if not inspect.isfunction(own):
        return repr(function)  # a value, as those of `headwater.project.cdc` are
    text = source(function)
    if own is function or not inspect.isfunction(own):
        return text
    defaults = {one.name: one.default for one in inspect.signature(own).parameters.values()}
    values = {**defaults, **inspect.getclosurevars(own).nonlocals, **getattr(function, "settings", {})}
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
    return f"{text}{plain or ''}"


def _renamed(one: Declaration, names: Mapping[str, str]) -> Declaration:
    """What reads topics, reading their tables."""
    if not isinstance(one, Table | View) or names.keys().isdisjoint(one.reads):
        return one
    reads = tuple(names.get(read, read) for read in one.reads)
    return replace(one, reads=reads, sources=reads)


class _Read(Topic):
    """The bronze table of a topic that a function reads, for where the project has no other of it."""


def _declared(output: Output, where: Where, file: Path, layer: str) -> Iterator[Declaration]:
    """What an output is, and the topics that it reads."""
    name = where.table
    if not name.startswith(f"{layer}."):
        raise ProjectError(
            f"{where} is in folder {layer}", code="WRONG_FOLDER", where=where, hint=f"name it {layer}.<name>"
        )
    said = Declaration(name=name, file=file, line=where.line, comment=inspect.cleandoc(output.comment))
    if output.cdc is not None:
        reads = (output.reads,)
        yield Table(sources=reads, into=output.target, once=output.once, cdc=output.cdc, **vars(said))
    elif output.function is None:
        yield _table(said, output)
    else:
        yield from _of_function(said, output, output.function, where)


def _of_function(
    said: Declaration, output: Output, function: Function, where: Where
) -> Iterator[Declaration]:
    """What a function declares."""
    recording, result = _recorded(function, where)
    if output.rules and output.kind in ("temporary_view", "append_flow"):
        raise ProjectError(
            f"{output.rules[0].where}: {output.rules[0].id} is expected of {where.table}, whose rows no flow "
            "judges",
            code="ACTION_NOT_POSSIBLE",
            where=output.rules[0].where,
            hint="expect it of the table that gets them",
        )
    topic = result.topic if type(result) is StandIn else None
    if topic is not None and output.kind == "table" and where.table.startswith("bronze."):
        yield _topic(said, output, topic)
        return
    for read in recording.topics.values():
        name = "bronze." + re.sub(r"\W", "_", read.topic)
        comment = f"The records of {read.topic}"
        yield _Read(
            name=name,
            file=said.file,
            line=said.line,
            comment=comment,
            topic=read.topic,
            servers=read.servers,
        )
    streams = [name for name, stream in recording.names.items() if stream]
    reads = tuple(dict.fromkeys([*streams, *recording.names]))
    event_time, delay = recording.watermark or (None, None)
    called = _called_with(output, reads, where, recording)
    if output.kind == "temporary_view":
        view = View(sources=reads, reads=reads, function=called, **vars(said))
        yield replace(view, event_time=event_time, delay=delay)
        return
    _check_streams(output, streams, reads, where)
    table = _table(said, output)
    most = [read.most for read in recording.topics.values() if read.most]
    yield replace(
        table,
        sources=reads,
        snapshots=tuple(name for name in reads if streams and name not in streams),
        reads=reads,
        function=called,
        view=output.kind == "materialized_view" or (output.kind == "table" and not streams),
        into=output.target,
        once=output.once,
        event_time=event_time,
        delay=delay,
        limits=replace(table.limits, max_rows_per_batch=min(most)) if most else table.limits,
    )


def _table(said: Declaration, output: Output) -> Table:
    """A table, but for what it reads."""
    rules = tuple(
        replace(rule, where=Where(rule.where, said.file, said.name, rule.where.line)) for rule in output.rules
    )
    return from_properties(Table(sources=(), expectations=rules, **vars(said)), output.properties)


def _topic(said: Declaration, output: Output, read: kafka.Read) -> Topic:
    """The bronze table of a topic."""
    if output.rules or output.schema is not None:
        what = output.rules[0].id if output.rules else "a schema"
        raise ProjectError(
            f"{said.where} has the records of a topic as they came, and {what}",
            code="ARGUMENT_NOT_SUPPORTED",
            where=said.where,
            hint="say it of the table that decodes them",
        )
    limits = topic_limits(said.where, output.properties)
    if read.most:
        limits = replace(limits, max_rows_per_batch=read.most)
    return Topic(topic=read.topic, servers=read.servers, limits=limits, **vars(said))


def _recorded(function: Function, where: Where) -> tuple[Recording, Any]:
    """What a function reads, and what it returns of stand-ins.

    One that fails on them has shown what it reads so far; whether it is wrong, its analysis tells.
    """
    recording = Recording()
    try:
        with begun(recording, where.table):
            return recording, function()
    except ProjectError:
        raise
    except Exception as e:
        if recording.names:
            recording.stopped = describe(e)
            return recording, None
        raise ProjectError(
            f"{raised_at(e, where)}: {describe(e)}",
            code="DEFINITION_FAILED",
            where=where,
            hint="mend the definition",
        ) from e


def _called_with(output: Output, reads: Iterable[str], where: Where, recording: Recording) -> Any:
    """A function of DataFrames, one for each read, as the engine calls it."""
    function, words = output.function, tuple(reads)
    assert function is not None

    @functools.wraps(function)
    def call(*frames: DataFrame) -> DataFrame:
        with begun(Given(dict(zip(words, frames, strict=True)), recording.stopped), where.table):
            rows = function()
        if output.schema is not None and isinstance(rows, DataFrame):
            _check_schema(rows, output.schema, where)
        return rows

    call.settings = recording.settings  # type: ignore[attr-defined]
    return call


def _check_streams(output: Output, streams: Sequence[str], reads: Sequence[str], where: Where) -> None:
    if output.kind == "materialized_view" and streams:
        raise ProjectError(
            f"{where} is a view, which reads whole tables",
            code="VIEW_READS_STREAM",
            where=where,
            hint="write spark.read.table, or declare a table: @dp.table",
        )
    if output.kind == "append_flow" and not (streams or output.once):
        raise ProjectError(
            f"{where} reads {', '.join(reads) or 'nothing'} as a table",
            code="STREAM_MISSING",
            where=where,
            hint="write spark.readStream.table",
        )


def _check_schema(rows: DataFrame, schema: Any, where: Where) -> None:
    try:
        said = schema if isinstance(schema, StructType) else jvm.ddl(str(schema))
    except ValueError as e:
        raise ProjectError(
            f"{where}: its schema is not Spark DDL: {e}", code="DDL_INVALID", where=where
        ) from None
    ours = {field.name: field.dataType.simpleString() for field in rows.schema}
    theirs = {field.name: field.dataType.simpleString() for field in said}
    if ours != theirs:
        differ = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        raise ProjectError(
            f"{where} differs from its schema in {', '.join(differ)}",
            code="SCHEMA_DIFFERS",
            where=where,
            hint="select and cast what the schema says, or leave the schema out",
        )
