"""What a definition reads as it is: reference tables and, of one that streams, tables of the lake; each read
once per version."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.common import times
from headwater.flows.context import Context
from headwater.flows.few import Given
from headwater.flows.inputs import Input
from headwater.project.definitions import Table
from headwater.runtime import in_memory
from headwater.storage import log, ranges
from headwater.storage.lake import Place
from headwater.storage.ranges import Position

_MOST = 100_000  # rows of a table that this process holds


class Outrun(Exception):  # noqa: N818 (nothing is wrong)
    """Maintenance has removed what a batch reads, before that was pinned; what there is now is to be read."""


class References:
    """The reference tables that a table's definition names, and the tables that it reads as they are.

    Args:
        context: the run.
        table: the definition.
        spark: where they are read.
    """

    def __init__(self, context: Context, table: Table, spark: SparkSession) -> None:
        known = context.project.references
        self._tables = {name: known[name] for name in table.sources if name in known}
        self._context, self._spark = context, spark
        self._snapshots = table.snapshots
        self._given: dict[str, DataFrame] = {}
        self._read: dict[tuple[str, str], DataFrame] = {}
        self._here: dict[tuple[str, str], Given] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tables or name in self._snapshots

    def pinnable(self) -> dict[str, str]:
        """The version of each, read before it is pinned.

        A pinned batch is done again from what it pinned: a broken file must not get that far, or mending
        it would not help.
        """
        root, now = self._context.lake.root, self._context.now()
        found = {name: table.version(root, now) for name, table in self._tables.items()}
        places = self._context.lake.places()
        for name in self._snapshots:
            place = places.get(name)
            at = Position(place.generation, log.head(place.path)) if place else Position(generation=0)
            found[name] = f"{at.generation}:{at.version}"
        for name, version in found.items():
            self.read(name, version)
        return found

    def check(self, versions: Mapping[str, str]) -> None:
        """Check that the tables still are there as they were at versions that are pinned by now.

        Raises:
            Outrun: one was read longer ago than past versions are kept: this process stood still.
        """
        places = self._context.lake.places() if self._snapshots else {}
        for name in self._snapshots:
            generation, version = map(int, versions[name].split(":"))
            place = places.get(name)
            if generation and (place is None or place.generation != generation):
                raise Outrun
            if generation and place is not None:
                check_kept(self._context, place, version)

    def give(self, name: str, rows: pa.Table) -> None:
        """Let a table have these rows, whatever there is of it."""
        columns = self._context.tables[name].columns
        self._given[name] = in_memory.frame(self._spark, rows, columns)

    def read(self, name: str, version: str) -> DataFrame:
        """The rows of one at a version."""
        if name in self._given:
            return self._given[name]
        if (name, version) not in self._read:
            if name in self._tables:
                rows = self._tables[name].read(self._spark, self._context.lake.root, version)
            else:
                rows = self._snapshot(name, version)
            self._read = {key: kept for key, kept in self._read.items() if key[0] != name}
            self._read[name, version] = rows
        return self._read[name, version]

    def frames(self, versions: Mapping[str, str]) -> dict[str, DataFrame]:
        """Each of them, at its version."""
        return {name: self.read(name, versions[name]) for name in self._names}

    def few(self, versions: Mapping[str, str]) -> dict[str, Given]:
        """The same as a query of few rows reads them."""
        return {name: self.given(name, versions[name]) for name in self._names}

    @property
    def _names(self) -> list[str]:
        return [*self._tables, *self._snapshots]

    def given(self, name: str, version: str) -> Given:
        """The same as a query of few rows reads it: here, where it is few rows itself."""
        frame = self.read(name, version)
        if name in self._given:
            return Given(frame.schema, frame.toArrow(), lambda: frame)
        if (name, version) not in self._here:
            self._here = {key: kept for key, kept in self._here.items() if key[0] != name}
            some = frame.limit(_MOST + 1).toArrow()
            self._here[name, version] = Given(
                frame.schema, some if len(some) <= _MOST else None, lambda: frame
            )
        return self._here[name, version]

    def _snapshot(self, name: str, version: str) -> DataFrame:
        """The rows of a table of the lake at a version of one of its generations; none of one that is not
        there yet."""
        generation, number = map(int, version.split(":"))
        columns = self._context.tables[name].columns
        if not generation:
            return in_memory.empty(self._spark, columns)
        place = self._context.lake.places().get(name)
        if place is None or place.generation != generation:  # it was swapped since that was pinned
            place = Place(name, generation, self._context.lake.at(name, generation), "")
        return Input.at(place, number).frame(self._spark, columns)


def check_kept(context: Context, place: Place, version: int) -> None:
    """Check that a version of a table that is pinned by now, but was held by nobody before, is kept.

    Raises:
        Outrun: it has not been the newest for longer than past versions are kept.
    """
    if not ranges.is_newest(
        place.path, version, times.now() - context.project.conf.maintain.kept(place.name)
    ):
        raise Outrun
