"""What a query may name: the lake's tables, the engine's own among them, and the reference tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deltalake.schema import Field
from pyspark.sql.types import StructType

from headwater.common import near
from headwater.errors import QueryError
from headwater.project import environment
from headwater.project.cdc.said import END, START
from headwater.project.conf import Conf
from headwater.project.reference import Reference, find_references
from headwater.storage import delta
from headwater.storage.lake import Lake
from headwater.storage.names import PARTIAL


@dataclass(frozen=True)
class Source:
    """A table that can be read: a Delta table at `path`, or the CSV file `path`."""

    name: str
    path: Path

    @property
    def is_delta(self) -> bool:
        """Whether it has versions."""
        return self.path.suffix != ".csv"

    def has_partial(self, version: int | None) -> bool:
        """Whether partial results are kept beside its columns."""
        table = delta.opened(self.path, version)
        return any(field.name == PARTIAL for field in table.schema().fields)

    def columns(self) -> list[str]:
        """The names of its columns, as a query sees them.

        Raises:
            HeadwaterError: it can't be read.
        """
        if not self.is_delta:
            return list(self.csv_columns().names)
        return [field.name for field in self._fields() if field.name != PARTIAL]

    def _fields(self) -> list[Field]:
        return delta.opened(self.path).schema().fields if self.is_delta else []

    def sequence(self) -> str | None:
        """The type, as Delta calls it, of what tells the versions of its rows apart; None: it has no history.

        Raises:
            HeadwaterError: it can't be read.
        """
        kinds = {each.name: str(each.type.to_json()).strip('"') for each in self._fields()}
        return kinds.get(START) if END in kinds else None

    def csv_columns(self) -> StructType:
        """The declared columns of a CSV file, which its header has too.

        Raises:
            ProjectError: the DDL file is missing or is not DDL, or the header has other names.
        """
        return Reference(self.name, self.path).csv_columns()


def of_project(project: Path | None, env: str) -> Sources:
    """The tables of the project at a folder, or above it (default: the current one).

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    root, conf = environment.enter(project, env)
    return Sources(root, env, conf)


class Sources:
    """The tables that queries of one project can name.

    Args:
        root: the project's folder.
        env: the environment.
        conf: its configuration.
    """

    def __init__(self, root: Path, env: str, conf: Conf) -> None:
        self.root = root
        self.conf = conf
        self._env = env
        self._lake = Lake(conf.lake)

    @property
    def tables(self) -> dict[str, Source]:
        """The generation that is live now of every table that something has been written to, by name."""
        places = self._lake.places()
        return {name: Source(name, places[name].path) for name in sorted(places)}

    @cached_property
    def references(self) -> dict[str, Source]:
        """The reference tables, by name."""
        return {r.name: Source(r.name, r.path) for r in find_references(self.root)}

    @property
    def all(self) -> list[Source]:
        """The tables and the reference tables, which a query may list that names none: SHOW ALL TABLES."""
        return [*self.tables.values(), *self.references.values()]

    @property
    def reference_folder(self) -> Path:
        """Where the reference tables lie."""
        return self.root / "conf" / "reference"

    def named(self, names: Iterable[str]) -> list[Source]:
        """The tables of these names.

        Raises:
            QueryError: one is unknown, or has not been written yet; the message says which, and what to do.
        """
        known = {source.name.lower(): source for source in self.all}
        found = []
        for name in dict.fromkeys(names):
            if name.lower() not in known:
                raise self._why_not(name, [source.name for source in known.values()])
            found.append(known[name.lower()])
        return found

    def _why_not(self, name: str, readable: list[str]) -> QueryError:
        """Why there is no such table; this alone loads the definitions, which takes seconds with SQL ones."""
        from headwater.project.load import load_project
        from headwater.storage.names import late_name, quarantine_name

        loaded = load_project(self.root, self._env)
        if name in loaded.names():
            run = f"run: headwater run {name} --once"
            return QueryError(f"{name} holds nothing yet", code="TABLE_EMPTY", table=name, hint=run)
        for table in loaded.tables:
            if name == quarantine_name(table):
                why = f"{name} holds nothing: {table} has rejected no row yet"
                return QueryError(why, code="NOTHING_SET_ASIDE", table=name)
            if name == late_name(table):
                why = f"{name} holds nothing: no row came too late for {table} yet"
                return QueryError(why, code="NOTHING_SET_ASIDE", table=name)
        if name in loaded.alerts:
            alert = loaded.alerts[name]
            why = f"{name} is an alert, which goes to the topic {alert.topic} and to no table"
            return QueryError(why, code="NOT_A_TABLE", table=name, file=alert.file)
        known = [*readable, *(n for n in loaded.names() if n not in readable)]
        hint = near.hint(name, known)
        return QueryError(f"unknown table '{name}'", code="UNKNOWN_TABLE", table=name, hint=hint)
