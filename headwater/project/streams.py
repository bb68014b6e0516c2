"""What a definition follows, and whether a flow can: streams, whole tables and reference tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.errors import ProjectError
from headwater.project.definitions import Files, Table, Topic
from headwater.project.process import Process
from headwater.project.reference import Reference


def followed(table: Table, references: Collection[str]) -> list[str]:
    """Of a table's sources, or those of a flow into one, those that it follows: no reference tables, and none
    that it reads as they are."""
    return [name for name in table.sources if name not in references and name not in table.snapshots]


def check(table: Table, raw: Mapping[str, Topic | Files], references: Mapping[str, Reference]) -> None:
    """A flow can read these sources.

    Args:
        table: the definition, or a flow into it.
        raw: the bronze tables.
        references: the reference tables.

    Raises:
        ProjectError: it can't.
    """
    streams = followed(table, references)
    if table.view and not table.corrected:
        _check_view(table, streams)
        return
    if table.process:
        return _check_process(table, table.process, references)
    if not streams:
        raise ProjectError(
            f"{table.where} reads no table that is written to",
            code="SEVERAL_STREAMS",
            where=table.where,
            hint="name one; reference tables may be joined with it",
        )
    if len(streams) > 1 and table.once:
        raise ProjectError(
            f"{table.where} reads {len(streams)} tables once ({', '.join(streams)})",
            code="SEVERAL_STREAMS",
            where=table.where,
            hint="read one; join in a table above or below it",
        )
    if len(streams) > 1 and table.decode:
        raise ProjectError(
            f"{table.where} reads {len(streams)} streams ({', '.join(streams)})",
            code="SEVERAL_STREAMS",
            where=table.where,
            hint="a table that decodes reads one",
        )
    whole = [name for name in streams if table.sql and name not in table.sql.streams]
    if whole:
        raise ProjectError(
            f"{table.where} reads {whole[0]} as a table",
            code="STREAM_MISSING",
            where=table.where,
            hint="write FROM STREAM",
        )
    if len(streams) > 1 and table.emit == "final" and table.allowed_lateness:
        raise ProjectError(
            f"{table.where}: a row that is final is not corrected",
            code="LATENESS_OF_FINAL_WINDOW",
            where=table.where,
            hint="leave allowed_lateness out and raise the delay",
        )
    untimed = [each for each in streams if each not in table.event_times] if table.emit == "final" else []
    if len(streams) > 1 and (untimed or (table.emit == "final" and table.delay is None)):
        of = untimed[0] if untimed else streams[0]
        raise ProjectError(
            f"{table.where} has emit = 'final', and does not say by which column {of} tells the time, and "
            "how late its rows may be",
            code="WATERMARK_MISSING",
            where=table.where,
            hint="in SQL write behind each stream WATERMARK column DELAY OF INTERVAL 10 SECONDS; in Python "
            "event_time={stream: column} and delay=",
        )
    if table.decode and streams[0] not in raw:
        raise ProjectError(
            f"{table.where} decodes {streams[0]}, which is no bronze table",
            code="NOT_BRONZE",
            where=table.where,
        )


def _check_process(table: Table, process: Process, references: Mapping[str, Reference]) -> None:
    others = [name for name in table.inputs if name in references or name not in table.sources]
    if others:
        raise ProjectError(
            f"{table.where} reads {', '.join(others)}, which it can't read row by row",
            code="NOT_A_STREAM",
            where=table.where,
            hint="a process reads tables whose rows are appended; join in a table above or below it",
        )
    if len(table.inputs) != len(process.streams):
        raise ProjectError(
            f"{table.where} reads {len(table.inputs)} streams ({', '.join(table.inputs)}) without names",
            code="SEVERAL_STREAMS",
            where=table.where,
            hint="give each a name: source={'name': 'table', …}",
        )
    twice = [name for name in table.sources if table.inputs.count(name) > 1]
    if twice:
        raise ProjectError(
            f"{table.where} reads {', '.join(twice)} as two streams",
            code="STREAM_TWICE",
            where=table.where,
            hint="read it once, and tell its rows apart in the function",
        )


def _check_view(table: Table, inputs: list[str]) -> None:
    if not inputs:
        raise ProjectError(
            f"{table.where} reads no table",
            code="VIEW_READS_NOTHING",
            where=table.where,
            hint="name one that is written to",
        )
    if table.sql and table.sql.streams:
        raise ProjectError(
            f"{table.where} is a view, which reads whole tables",
            code="VIEW_READS_STREAM",
            where=table.where,
            hint="leave out STREAM, or write CREATE STREAMING TABLE",
        )
