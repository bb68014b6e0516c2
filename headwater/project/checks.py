"""The graph of a project, checked before anything runs: all that is wrong with it is collected."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from headwater.common import near
from headwater.common.durations import interval
from headwater.errors import ConfError, ProjectError
from headwater.errors.several import Collected
from headwater.project import streams
from headwater.project.bucket import SCHEME
from headwater.project.conf import Conf
from headwater.project.definitions import (
    Alert,
    Declaration,
    Emit,
    Files,
    Format,
    OnError,
    Refresh,
    Sink,
    Table,
    Topic,
    View,
)
from headwater.project.suite import Suite
from headwater.storage.lake import Lake
from headwater.storage.names import beside, is_engines

if TYPE_CHECKING:
    from headwater.project.reference import Reference


class Checks:
    """Checks that collect all that is wrong.

    Args:
        wrong: where it is collected.
        unread: layers of which a file can't be read: a table of theirs that is missing is not said to be.
    """

    def __init__(self, wrong: Collected, unread: Collection[str]) -> None:
        self._wrong, self._unread = wrong, unread

    def names(self, declared: Iterable[Declaration]) -> None:
        """Every name is declared once, and that of a table can be a folder's."""
        seen: dict[str, Declaration] = {}
        for declaration in declared:
            with self._wrong.each():
                _check_name(declaration, seen)
            seen.setdefault(declaration.name, declaration)
        for declaration in seen.values():
            with self._wrong.each():
                _check_beside(declaration, seen)

    def graph(
        self,
        raw: Mapping[str, Topic | Files],
        tables: Mapping[str, Table],
        alerts: Mapping[str, Alert],
        sinks: Mapping[str, Sink],
        references: Mapping[str, Reference],
        views: Mapping[str, View],
    ) -> list[str]:
        """The tables' names, each after those it reads: all are known, and flows can read them."""
        for bronze in raw.values():
            with self._wrong.each():
                _check_intervals(bronze)
                if isinstance(bronze, Files):
                    _check_files(bronze)
        known = [*raw, *tables, *references, *views]
        for view in views.values():
            for source in view.inputs:
                self._known(view, source, known)
        for table in tables.values():
            with self._wrong.each():
                _check_properties(table)
            for source in () if table.flows else table.inputs:
                self._known(table, source, known)
            for flow in table.flows:
                for source in flow.inputs:
                    self._known(flow, source, known)
            if all(source in known for source in table.sources):
                for flow in table.flows or (table,):
                    with self._wrong.each():
                        streams.check(flow, raw, references)
        topics = [name for name, found in raw.items() if isinstance(found, Topic)]
        for alert in alerts.values():
            self._known(alert, alert.source, topics)
        for sink in sinks.values():
            self._known(sink, sink.table, list(tables))
            with self._wrong.each():
                _check_sink(sink, tables.get(sink.table))
        with self._wrong.each():
            return _ordered(tables)
        return []

    def suites(self, suites: Mapping[str, Suite], tables: list[str]) -> None:
        """Every suite is of a table."""
        for suite in suites.values():
            if suite.table not in tables and not self._may_be(suite.table):
                error = ProjectError(
                    f"{suite.file}: no table '{suite.table}'",
                    code="SUITE_WITHOUT_TABLE",
                    table=suite.table,
                    file=suite.file,
                    hint=near.hint(suite.table, tables, listed=False),
                )
                self._wrong.add(error)

    def maintained(self, conf: Conf, tables: list[str], derived: Collection[str], file: Path) -> None:
        """Every table that the environment maintains otherwise is the project's, or still the lake's; none of
        those that are derived has a retention."""
        kept = conf.maintain.tables
        for name in (name for name in derived if name in kept and kept[name].retention):
            said = f"{file}: key 'maintain.tables.{name}': its rows are derived, and have no retention"
            hint = "give one to a bronze table, or leave rows out in the definition"
            self._wrong.add(ConfError(said, code="CONF_INVALID", file=file, hint=hint))
        known = [*tables, *(each for name in tables for each in beside(name))]
        strange = [name for name in conf.maintain.tables if name not in known and not is_engines(name)]
        for name in strange:
            if not self._may_be(name) and name not in Lake(conf.lake).places():
                error = ConfError(
                    f"{file}: key 'maintain.tables': no table '{name}'",
                    code="CONF_INVALID",
                    file=file,
                    hint=near.hint(name, known, listed=False),
                )
                self._wrong.add(error)

    def _known(self, declaration: Declaration, source: str, known: list[str]) -> None:
        if source in known or self._may_be(source):
            return
        error = ProjectError(
            f"{declaration.where} reads '{source}', which is unknown",
            code="UNKNOWN_SOURCE",
            table=declaration.name,
            file=declaration.file,
            hint=near.hint(source, known, listed=False),
        )
        self._wrong.add(error)

    def _may_be(self, table: str) -> bool:
        """Whether a file that can't be read may declare a table."""
        return table.partition(".")[0] in self._unread


def _check_name(declaration: Declaration, seen: Mapping[str, Declaration]) -> None:
    if not isinstance(declaration, Sink) and not re.fullmatch(r"\w+\.\w+", declaration.name):
        raise ProjectError(
            f"{declaration.where} has other characters in its name than letters, digits and _",
            code="TABLE_NAME_INVALID",
            where=declaration.where,
            hint="name it <layer>.<name>",
        )
    if declaration.name in seen:
        first = seen[declaration.name].file
        raise ProjectError(
            f"{declaration.where} is also declared in {first}",
            code="NAME_TWICE",
            table=declaration.name,
            file=declaration.file,
            hint="rename one",
        )


def _check_beside(declaration: Declaration, seen: Mapping[str, Declaration]) -> None:
    """No table has the name of one that is kept beside another; of late rows, analysing it says that."""
    for name, kind in beside(declaration.name).items() if not isinstance(declaration, Sink) else ():
        if kind != "late" and name in seen:
            raise named_as_beside(seen[name], declaration.name, kind)


def named_as_beside(other: Declaration, name: str, kind: str) -> ProjectError:
    """A declaration with the name of a table that is kept beside another, `name`, for what `kind` says."""
    return ProjectError(
        f"{other.where} has the name of the table of {name} for its {kind}",
        code="NAME_TWICE",
        where=other.where,
        hint="rename one",
    )


def _check_intervals(definition: Topic | Files | Table) -> None:
    try:
        interval(definition.limits.trigger or "0s")
        interval(definition.skew if isinstance(definition, Table) else "0s")
        interval(definition.idle_timeout if isinstance(definition, Table) else "0s")
    except ConfError as e:
        raise ProjectError(
            f"{definition.where}: {e}", code="INTERVAL_INVALID", where=definition.where, hint=e.hint
        ) from None


def _check_properties(table: Table) -> None:
    _check_intervals(table)
    for option, value, known in (
        ("emit", table.emit, get_args(Emit)),
        ("refresh", table.refresh, get_args(Refresh)),
        ("on_error", table.on_error, get_args(OnError)),
    ):
        if value not in known:
            raise ProjectError(
                f"{table.where}: {option} = '{value}'",
                code="PROPERTY_INVALID",
                where=table.where,
                hint=f"known: {', '.join(known)}",
            )
    if table.view and table.cdc is None and table.limits.max_rows_per_batch:
        raise ProjectError(
            f"{table.where}: max_rows_per_batch is of a table that takes its input in batches, and this one "
            "takes all that has changed at once",
            code="PROPERTY_INVALID",
            where=table.where,
            hint="leave it out, or say it of a table above",
        )
    unheard = {
        "emit = 'final'": table.emit == "final",
        "allowed_lateness": table.allowed_lateness,
    }
    if table.flows and any(unheard.values()):
        raise ProjectError(
            f"{table.where}: {next(filter(unheard.get, unheard))} is of a query, and flows feed the table",
            code="PROPERTY_INVALID",
            where=table.where,
            hint="let a table of its own say it, and a flow read that",
        )
    if table.view and any(unheard.values()):
        raise ProjectError(
            f"{table.where}: {next(filter(unheard.get, unheard))} is of windows that are appended, and "
            "rows of a view change in place",
            code="PROPERTY_INVALID",
            where=table.where,
            hint="write CREATE STREAMING TABLE, or leave it out",
        )
    if table.refresh != "auto" and not table.view:
        raise ProjectError(
            f"{table.where}: refresh = '{table.refresh}' is of a materialized view",
            code="PROPERTY_INVALID",
            where=table.where,
            hint="leave it out: a streaming table always reads what is new",
        )


def _check_sink(sink: Sink, table: Table | None) -> None:
    if sink.on == "final" and table is not None and table.view:
        raise ProjectError(
            f"{sink.where}: on = 'final' is of windows, which are over one day, and rows of a view may "
            "always change",
            code="PROPERTY_INVALID",
            where=sink.where,
            hint="leave it out",
        )
    if sink.on not in get_args(Emit):
        raise ProjectError(
            f"{sink.where}: on = '{sink.on}'",
            code="PROPERTY_INVALID",
            where=sink.where,
            hint=f"known: {', '.join(get_args(Emit))}",
        )


def _ordered(tables: Mapping[str, Table]) -> list[str]:
    try:
        order = TopologicalSorter({n: t.sources for n, t in tables.items()}).static_order()
        return [name for name in order if name in tables]
    except CycleError as e:
        cycle = list(dict.fromkeys(e.args[1]))
        first = tables[cycle[0]]
        raise ProjectError(
            f"{first.where} is in a cycle: {' → '.join([*cycle, cycle[0]])}",
            code="DEFINITIONS_CYCLE",
            where=first.where,
            hint="cut it",
        ) from None


def _check_files(bronze: Files) -> None:
    if bronze.format not in get_args(Format):
        known = ", ".join(get_args(Format))
        raise ProjectError(
            f"{bronze.where}: format = '{bronze.format}'",
            code="PROPERTY_INVALID",
            where=bronze.where,
            hint=f"known: {known}",
        )
    scheme, separator, rest = bronze.pattern.partition("://")
    if separator and (scheme + separator != SCHEME or not all(rest.partition("/")[::2])):
        raise ProjectError(
            f"{bronze.where}: files are named by a path, or as s3://<bucket>/<key>, not {bronze.pattern}",
            code="FILES_PATTERN_INVALID",
            where=bronze.where,
        )
