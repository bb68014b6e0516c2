"""From what a file has said to `pyspark.pipelines` to declarations: each function is called once, with
stand-ins, and shows what it reads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.errors import ProjectError, Where
from headwater.errors.causes import describe
from headwater.project.definitions import Declaration, Table, Topic, View
from headwater.project.naming import defined
from headwater.project.pipelines import kafka
from headwater.project.pipelines.reading import KAFKA, Given, Recording, begun
from headwater.project.pipelines.registry import Function, Output
from headwater.project.pipelines.stand_in import StandIn
from headwater.project.properties import from_properties
from headwater.runtime import jvm


def declarations(outputs: Iterable[Output], file: Path, layer: str) -> Iterator[Declaration]:
    """What a file declares.

    Args:
        outputs: what it has said.
        file: the file.
        layer: its folder.

    Raises:
        ProjectError: a function does what can't be done here, or reads what it can't.
    """
    for output in outputs:
        name = defined(output.name, layer)
        yield _declaration(output, Where(f"{output.at}: {name}", file, name), file)


def _declaration(output: Output, where: Where, file: Path) -> Declaration:
    said = Declaration(name=where.table, file=file, comment=inspect.cleandoc(output.comment))
    if output.function is None:
        return _table(said, output)
    recording, result = _recorded(output.function, where)
    topic = result.topic if type(result) is StandIn else None
    if output.rules and (output.kind in ("temporary_view", "append_flow") or topic):
        raise ProjectError(
            f"{output.rules[0].where}: {output.rules[0].id} is expected of {where.table}, whose rows no flow "
            "judges",
            code="ACTION_NOT_POSSIBLE",
            where=output.rules[0].where,
            hint="expect it of a table that has them",
        )
    if topic is not None and output.kind == "table":
        limits = kafka.limits(recording.topics[topic])
        return Topic(topic=topic, limits=limits, **vars(said))
    streams = [read for read, stream in recording.names.items() if stream]
    reads = tuple(dict.fromkeys([*streams, *recording.names]))
    event_time, delay = recording.watermark or (None, None)
    function = _called_with(output, reads, where, recording.stopped)
    if output.kind == "temporary_view":
        view = View(sources=reads, reads=reads, function=function, **vars(said))
        return replace(view, event_time=event_time, delay=delay)
    _check_streams(output, streams, reads, where)
    table = _table(said, output)
    for options in recording.topics.values():
        most = kafka.limits(options).max_rows_per_batch or table.limits.max_rows_per_batch
        table = replace(table, limits=replace(table.limits, max_rows_per_batch=most))
    return replace(
        table,
        sources=reads,
        reads=reads,
        function=function,
        view=output.kind == "materialized_view" or (output.kind == "table" and not streams),
        into=output.target,
        event_time=event_time,
        delay=delay,
    )


def _table(said: Declaration, output: Output) -> Table:
    """A table, but for what it reads."""
    rules = tuple(replace(rule, where=Where(rule.where, said.file, said.name)) for rule in output.rules)
    return from_properties(Table(sources=(), expectations=rules, **vars(said)), output.properties)


def with_topics(declared: Sequence[Declaration]) -> list[Declaration]:
    """The same where a topic that a function reads is the bronze table with its records.

    One that has none gets `bronze.<topic>`.
    """
    found = {one.topic: one.name for one in declared if isinstance(one, Topic)}
    made: list[Declaration] = []
    for one in declared:
        for read in one.reads if isinstance(one, Table | View) else ():
            topic = read.removeprefix(KAFKA)
            if read.startswith(KAFKA) and topic not in found:
                name = "bronze." + "".join(c if c.isalnum() else "_" for c in topic)
                comment = f"The records of {topic}, for {one.name}"
                made.append(Topic(name=name, file=one.file, comment=comment, topic=topic))
                found[topic] = name
    return [*(_of_bronze(one, found) for one in declared), *made]


def text_of(function: Any) -> str:
    """The text of a definition's function, and the plain values that one of a pipeline was made with."""
    text, own = inspect.getsource(function), inspect.unwrap(function)
    if own is function or not inspect.isfunction(own):
        return text
    defaults = {one.name: one.default for one in inspect.signature(own).parameters.values()}
    values = {**defaults, **inspect.getclosurevars(own).nonlocals}
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
    return f"{text}{plain or ''}"


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
            f"{where}: {describe(e)}", code="DEFINITION_FAILED", where=where, hint="mend the definition"
        ) from e


def _called_with(output: Output, reads: Iterable[str], where: Where, stopped: str) -> Any:
    """A function of DataFrames, one for each read, as the engine calls it."""
    function, words = output.function, tuple(reads)
    assert function is not None

    @functools.wraps(function)
    def call(*frames: DataFrame) -> DataFrame:
        with begun(Given(dict(zip(words, frames, strict=True)), stopped), where.table):
            rows = function()
        if output.schema is not None and isinstance(rows, DataFrame):
            _check_schema(rows, output.schema, where)
        return rows

    return call


def _check_streams(output: Output, streams: Sequence[str], reads: Sequence[str], where: Where) -> None:
    if output.kind == "materialized_view" and streams:
        raise ProjectError(
            f"{where} is a view, which reads whole tables",
            code="VIEW_READS_STREAM",
            where=where,
            hint="write spark.read.table, or declare a table: @dp.table",
        )
    if output.kind == "append_flow" and not streams:
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


def _of_bronze(one: Declaration, tables: dict[str, str]) -> Declaration:
    if not isinstance(one, Table | View) or not any(read.startswith(KAFKA) for read in one.reads):
        return one
    reads = tuple(tables[r.removeprefix(KAFKA)] if r.startswith(KAFKA) else r for r in one.reads)
    return replace(one, reads=reads, sources=reads)
