"""Names without a layer, as Spark Declarative Pipelines has them: said once, before all else sees one.

A definition without a layer takes that of its folder. A reference without one is to the only table of that
name, else to the one of its own layer. All that is loaded then speaks of `<layer>.<name>` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater.errors import ProjectError
from headwater.errors.several import Collected
from headwater.project.cdc.said import CHANGES
from headwater.project.definitions import Alert, Declaration, Files, Lookup, Query, Table, Topic, View

FINAL = "_final"  # of a table that is corrected as rows come, the one of its windows that are over
_PIPELINE = "live."  # what Databricks' older texts write before the name of a table of the same pipeline


def defined(name: str, layer: str) -> str:
    """The name of what a file in the folder `layer` declares as `name`."""
    return name if "." in name else f"{layer}.{name}"


class Names:
    """What may be read, by whole names.

    Args:
        known: their names, `<layer>.<name>`.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for name in dict.fromkeys(known):
            self._by_name.setdefault(name.partition(".")[2], []).append(name)

    def of(self, name: str, by: Declaration) -> str:
        """The whole name of what `by` calls `name`; as it is where nothing is called so.

        Raises:
            ProjectError: tables of several layers are, and none of them is of the layer of `by`.
        """
        name = name[len(_PIPELINE) :] if name.lower().startswith(_PIPELINE) else name
        found = [each for each in self._by_name.get(name, []) if each != by.name]
        if "." in name or not found:
            return name
        layer = by.name.partition(".")[0]
        own = [each for each in found if each.startswith(f"{layer}.")]
        if len(found) > 1 and not own:
            raise ProjectError(
                f"{by.where} reads '{name}', and there are {' and '.join(found)}",
                code="NAME_AMBIGUOUS",
                where=by.where,
                hint="write one of them",
            )
        return (own or found)[0]


def resolved(
    declared: Sequence[Declaration], references: Iterable[str], wrong: Collected
) -> list[Declaration]:
    """What is declared, with whole names for all that it reads; what can't be told apart is collected.

    Args:
        declared: all of a project, each with its own whole name.
        references: the names of the reference tables.
        wrong: where errors are collected.
    """
    names = Names([*_readable(declared), *references])
    lookups = Names(one.name for one in declared if isinstance(one, Lookup))
    found = []
    for one in declared:
        with wrong.each():
            found.append(_resolved(one, names, lookups))
    return found


def _readable(declared: Sequence[Declaration]) -> list[str]:
    """The names of all that can be read, with tables that are made where they are: of final windows, and of
    the changes that a table follows from."""
    found = [one for one in declared if isinstance(one, Topic | Files | Table | View)]
    known = [one.name for one in found if not (isinstance(one, Table) and one.into)]
    tables = [one for one in found if isinstance(one, Table) and not one.view]
    fed = [Names(known).of(one.into, one) if one.into else one.name for one in tables if one.cdc]
    return [*known, *(f"{one.name}{FINAL}" for one in tables), *(f"{name}{CHANGES}" for name in fed)]


def _resolved(one: Declaration, names: Names, lookups: Names) -> Declaration:
    if isinstance(one, Alert):
        return replace(one, source=names.of(one.source, one))
    if isinstance(one, Table) and one.into:
        one = replace(one, into=names.of(one.into, one))
    if isinstance(one, Table) and one.lookup:
        one = replace(one, lookup=lookups.of(one.lookup, one))
    if isinstance(one, Table | View):
        reads = tuple(names.of(name, one) for name in one.inputs)
        if isinstance(one, Table):
            times = {names.of(name, one): column for name, column in one.event_times.items()}
            whole = tuple(names.of(name, one) for name in one.snapshots)
            one = replace(one, snapshots=whole, event_times=times)
        return replace(one, sources=tuple(dict.fromkeys(reads)), reads=reads, sql=_streams(one, names))
    return one


def _streams(one: Table | View, names: Names) -> Query | None:
    if one.sql is None:
        return None
    return replace(one.sql, streams=tuple(dict.fromkeys(names.of(name, one) for name in one.sql.streams)))
