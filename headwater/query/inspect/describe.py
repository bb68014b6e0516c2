"""All that is known of one table: what its definition says, and what its Delta table holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.common import near
from headwater.errors import ProjectError
from headwater.planner import outlines
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Files, Table, Topic
from headwater.project.load import Project
from headwater.query import inspect
from headwater.runtime import cache, catalyst, jvm
from headwater.storage import summary
from headwater.storage.lake import Lake, Place
from headwater.storage.names import (
    gaps_name,
    late_name,
    ledger_name,
    lookup_name,
    quarantine_name,
    state_name,
)
from headwater.storage.summary import Summary


@dataclass(frozen=True)
class Description:
    """A table, described.

    Attributes:
        name: `<layer>.<name>`.
        kind: as in `headwater.query.inspect.Listed`.
        file: what defines it, relative to the project; None for a table that only the lake has.
        comment: its description.
        sources: what it reads.
        read_by: the tables and alerts that read it.
        columns: {column → type}, as Spark writes types; times are UTC.
        keys: the columns, or the expressions of the GROUP BY, that identify a row; none where rows are
            appended.
        event_time, delay: the column that says when a row happened, or those of several streams, and how much
            later rows may come.
        emit: `update`: rows change in place as their inputs come; `append`: rows are added; `final`: a window
            is added when it is over.
        limits: what bounds one batch; the environment's where the definition has none. A materialized view
            takes all that has changed at once, so its rows and bytes are None.
        published: the sinks that its changes are sent to.
        expectations: how many its suite has; None without a suite.
        quarantine, quarantined: the table of rejected rows, and how many there are.
        late: the table of its late rows, where there are any.
        state: what it holds; None where nothing is written yet.
    """

    name: str
    kind: str
    file: str | None
    comment: str
    sources: tuple[str, ...]
    read_by: tuple[str, ...]
    columns: dict[str, str]
    keys: tuple[str, ...]
    event_time: str | None
    delay: str | None
    emit: str
    limits: dict[str, Any]
    published: tuple[str, ...]
    expectations: int | None
    quarantine: str | None
    quarantined: int | None
    late: str | None
    state: Summary | None


def describe(project: Project, name: str) -> Description:
    """The description of the table `name`.

    A table that is not written yet is analysed, for its columns; see `headwater.planner.outlines`.

    Raises:
        ProjectError: there is no such table.
    """
    lake = Lake(project.conf.lake)
    places = lake.places()
    _check(project, name, list(places))
    found = project.raw.get(name) or project.tables.get(name)
    reference = project.references.get(name)
    place = Place(name, 1, reference.path) if reference and reference.path.is_dir() else places.get(name)
    table = found if isinstance(found, Table) else None
    rejects = quarantine_name(name) if table and table.decodes else None
    keys = _keys(table) if table else ()
    owner = inspect.owner(project, name)
    changes = place is not None and summary.changes_in_place(place)
    return Description(
        name=name,
        kind=inspect.kind(project, name),
        file=_file(project, name, owner),
        comment=found.comment if found else _of_beside(name, owner),
        sources=_sources(found, owner),
        read_by=_read_by(project, name),
        columns=_columns(project, name, place),
        keys=keys,
        event_time=_event_time(table) if table else None,
        delay=table.delay if table else None,
        emit="final" if table and table.emit == "final" else "update" if keys or changes else "append",
        limits=_limits(project, found) if found else {},
        published=tuple(sink.target for sink in project.sinks.values() if sink.table == name),
        expectations=len(project.suites[name].rules) if name in project.suites else None,
        quarantine=rejects,
        quarantined=(summary.of(places[rejects]).rows if rejects in places else 0) if rejects else None,
        late=late_name(name) if late_name(name) in places else None,
        state=summary.of(place) if place else None,
    )


def _of_beside(name: str, owner: str | None) -> str:
    if owner is None:
        return ""
    return {
        quarantine_name(owner): f"Rows that {owner} could not take, with the reason",
        late_name(owner): f"Rows that came too late for {owner}, with the watermark that they missed",
        state_name(owner): f"What {owner} keeps between batches",
        lookup_name(owner): f"What the rows of {owner} were told by its lookup, and from which record on",
        ledger_name(owner): f"Files that {owner} was fed from, and what came of each",
        gaps_name(owner): f"Records that Kafka let go of before {owner} had read them",
    }.get(name, f"What became of the records in {quarantine_name(owner)}")


def _check(project: Project, name: str, written: list[str]) -> None:
    known = list(dict.fromkeys([*project.names(), *written, *project.references]))
    if name in known:
        return
    if name in project.alerts:
        alert = project.alerts[name]
        raise ProjectError(
            f"{alert.where} is an alert to the topic {alert.topic}, not a table",
            code="NOT_A_TABLE",
            where=alert.where,
            hint="see headwater ls",
        )
    hint = near.hint(name, known)
    raise ProjectError(f"unknown table '{name}'", code="UNKNOWN_TABLE", table=name, hint=hint)


def _columns(project: Project, name: str, place: Place | None) -> dict[str, str]:
    if place is not None:
        return summary.columns(place)
    if name in project.raw:
        return summary.type_names(BRONZE)
    if name in project.references:
        return summary.type_names(project.references[name].csv_columns())
    return summary.type_names(outlines.outlines(project)[name].columns)


def _keys(table: Table) -> tuple[str, ...]:
    """The declared keys, else what the query groups by; Spark's parser says that, without a session."""
    if table.keys or table.sql is None:
        return table.keys
    return _grouping(table.sql.bare([f"`{name}`" for name in table.inputs]))


@cache.kept
def _grouping(text: str) -> tuple[str, ...]:
    """What a query groups by; nothing where it does not."""
    plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(text)
    while catalyst.kind(plan) != "Aggregate":
        below = list(jvm.items(plan.children()))
        if len(below) != 1:
            return ()
        plan = below[0]
    return tuple(str(e.sql()) for e in jvm.items(plan.groupingExpressions()))


def _event_time(table: Table) -> str | None:
    columns = [table.event_time, *table.event_times.values()]
    columns = columns if table.process is None else [each.event_time for each in table.process.streams]
    return ", ".join(dict.fromkeys(filter(None, columns))) or None


def _sources(found: Topic | Files | Table | None, owner: str | None) -> tuple[str, ...]:
    if isinstance(found, Topic):
        return (f"kafka:{found.topic}",)
    if isinstance(found, Files):
        return (f"files:{found.pattern}",)
    if found is not None:
        return found.sources
    return (owner,) if owner else ()


def _read_by(project: Project, name: str) -> tuple[str, ...]:
    tables = [table.name for table in project.tables.values() if name in table.sources]
    return (*tables, *(alert.name for alert in project.alerts.values() if alert.source == name))


def _limits(project: Project, definition: Topic | Files | Table) -> dict[str, Any]:
    conf, limits = project.conf, definition.limits
    bounded = not (isinstance(definition, Table) and definition.view)
    return {
        "parallelism": limits.parallelism or conf.parallelism,
        "max_rows_per_batch": (limits.max_rows_per_batch or conf.max_rows_per_batch) if bounded else None,
        "max_bytes_per_batch": conf.max_bytes_per_batch if bounded else None,
        "trigger": limits.trigger or (None if isinstance(definition, Table) else conf.trigger),
    }


def _file(project: Project, name: str, owner: str | None) -> str | None:
    """What declares the table, relative to the project; for a quarantine, what declares its owner."""
    if name in project.references:
        path = project.references[name].path
    elif owner is not None or name in project.names():
        path = project.definition(owner or name).file
    else:
        return None
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else str(path)
