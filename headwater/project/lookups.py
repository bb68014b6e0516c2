"""Lookups of a project, checked before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from headwater.common import near
from headwater.common.durations import interval
from headwater.errors import ConfError, ProjectError
from headwater.errors.several import Collected
from headwater.project.definitions import Lookup, PostgresRows, Table


def check(
    wrong: Collected,
    lookups: Mapping[str, Lookup],
    tables: Mapping[str, Table],
    connections: Collection[str],
    conf: Path,
) -> None:
    """Every lookup can be asked, and every table that names one has rows for it; what is wrong is collected.

    Args:
        wrong: where it is collected.
        lookups: by name.
        tables: by name.
        connections: the names of the environment's `postgres`.
        conf: the environment's file.
    """
    for lookup in lookups.values():
        with wrong.each():
            _check(lookup)
        if isinstance(lookup.fetch, PostgresRows) and lookup.fetch.connection not in connections:
            meant = near.hint(lookup.fetch.connection, [*connections], listed=False)
            error = ProjectError(
                f"{lookup.where} asks '{lookup.fetch.connection}', which is no connection",
                code="UNKNOWN_CONNECTION",
                where=lookup.where,
                hint=f"add it under 'postgres' in {conf}; {meant}",
            )
            wrong.add(error)
    for table in tables.values():
        for flow in (table, *table.flows):
            if flow.lookup:
                with wrong.each():
                    _check_reader(flow, lookups)


def _check(lookup: Lookup) -> None:
    try:
        interval(lookup.ttl)
    except ConfError as e:
        raise ProjectError(
            f"{lookup.where}: ttl: {e}", code="INTERVAL_INVALID", where=lookup.where, hint=e.hint
        ) from None
    if not lookup.keys or lookup.most < 1 or lookup.at_once < 1:
        raise ProjectError(
            f"{lookup.where} needs one key at least, and a cache_size and a batch_size of 1 or more",
            code="PROPERTY_INVALID",
            where=lookup.where,
        )


def _check_reader(table: Table, lookups: Mapping[str, Lookup]) -> None:
    if table.lookup not in lookups:
        raise ProjectError(
            f"{table.where} looks up '{table.lookup}', which is no lookup",
            code="UNKNOWN_SOURCE",
            where=table.where,
            hint=near.hint(table.lookup, [*lookups], listed=False),
        )
    if table.view or table.process is not None or table.cdc is not None or table.flows or table.into:
        raise not_of_rows(table)


def not_of_rows(table: Table) -> ProjectError:
    """What is said of a table that names a lookup and is not one of rows that follow from one row each."""
    return ProjectError(
        f"{table.where} has a lookup, and is no table whose rows follow from one row each of one stream",
        code="LOOKUP_NOT_OF_ROWS",
        where=table.where,
        hint="look it up in a table that only adds the columns, and read that one here",
    )
