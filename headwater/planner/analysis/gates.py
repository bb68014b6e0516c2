"""What rows of a table are expected to be: its suite, and what the engine itself expects of event times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.common.durations import MICROSECOND, interval
from headwater.errors import ProjectError, Where
from headwater.errors.causes import describe, first_line
from headwater.planner.analysis import repeatable
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.rule import Rule
from headwater.project.suite import Suite
from headwater.quality import predicate
from headwater.quality.gate import Gate
from headwater.runtime import catalyst, in_memory

FUTURE_RULE = "future"  # an event time beyond ingested_at and the table's skew


def gate_of(project: Project, table: Table, result: DataFrame, of: str) -> Gate | None:
    """The gate of a table whose rows are appended, by the suite of the table `of`; None: nothing is expected.

    Raises:
        ProjectError: a rule that the table can't have.
    """
    suite = project.suites.get(of, Suite(of, table.file))
    empty = in_memory.empty(result.sparkSession, result.schema)
    for rule in suite.rules:
        if rule.action == "quarantine" and table.decode is None:
            raise ProjectError(
                f"{rule.where}: {rule.id} quarantines rows of {table.name}, which has no raw records to keep",
                code="ACTION_NOT_POSSIBLE",
                where=rule.where,
                hint="expect this of the table that decodes, or write another action",
            )
        if rule.scope == "table" or not predicate.knows(rule.type):
            continue
        with _mended(rule.where, rule.id):
            repeatable.check(empty.where(predicate.failed(rule, result.schema)), rule.where)
    columns = sorted(_watermarks(project, table, result.columns))
    with _mended(Where(str(suite.file), suite.file, suite.table), "an expectation of many rows"):
        gate = Gate(suite, result.schema, [_future(table, result, columns)] if columns else [])
    told = [(one.rule, one.metrics) for one in gate.measures] + [(one.rule, ()) for one in gate.keyed]
    for rule, metrics in told:
        with _mended(rule.where, rule.id):
            repeatable.check(gate.judge(empty).agg(F.count("*"), *metrics), rule.where)
    return gate if gate.rules or gate.measures else None


@contextmanager
def _mended(where: Where, what: str) -> Iterator[None]:
    """Say of an expectation that can't be asked where it stands.

    Raises:
        ProjectError: it can't.
    """
    try:
        yield
    except PySparkException as e:
        said = first_line(e)
    except (AttributeError, KeyError, TypeError, ValueError) as e:  # an argument of another kind
        said = describe(e)
    else:
        return
    raise ProjectError(
        f"{where}: {what}: {said}", code="EXPECTATION_INVALID", where=where, hint="mend the suite"
    )


def _watermarks(project: Project, table: Table, columns: Sequence[str]) -> set[str]:
    """The columns of a table that decodes by which it, or a table below, tells the time."""
    if table.decode is None:
        return set()
    found, todo = {table.event_time}, [table.into or table.name]
    while todo:
        source = todo.pop()
        for below in project.tables.values():
            if source in below.sources:
                found.add(below.stream(source).event_time)
                todo.append(below.name)
    return {column for column in found if column is not None and column in columns}


def _future(table: Table, result: DataFrame, columns: Sequence[str]) -> tuple[Rule, Column]:
    """A guard: an event time can't lie ahead of the time at which the record was read.

    One that does would move the watermark ahead, and all that is on time would be late.
    """
    where = table.where
    if "ingested_at" not in result.columns:
        raise ProjectError(
            f"{where} drops the column ingested_at",
            code="REQUIRED_COLUMN_MISSING",
            where=where,
            hint=f"keep it, it tells which {columns[0]} can't be",
        )
    rule = Rule(FUTURE_RULE, "event_time_not_in_the_future", {"column_list": columns}, "quarantine", where)
    latest = F.unix_micros(F.col("ingested_at")) + interval(table.skew) // MICROSECOND
    times = [F.unix_micros(catalyst.named(column).cast("timestamp")) for column in columns]
    return rule, reduce(or_, [F.coalesce(at > latest, F.lit(False)) for at in times])
