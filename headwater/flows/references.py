"""The reference tables of one definition, each read once per version."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headwater.flows.context import Context
from headwater.project.definitions import Table


class References:
    """The reference tables that a table's definition names.

    Args:
        context: the run.
        table: the definition.
        spark: where they are read.
    """

    def __init__(self, context: Context, table: Table, spark: SparkSession) -> None:
        known = context.project.references
        self._tables = {name: known[name] for name in table.sources if name in known}
        self._lake, self._now = context.lake.root, context.now
        self._spark = spark
        self._read: dict[tuple[str, str], DataFrame] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tables

    def pinnable(self) -> dict[str, str]:
        """The version of each, read before it is pinned.

        A pinned batch is done again from what it pinned: a broken file must not get that far, or mending
        it would not help.
        """
        found = {name: table.version(self._lake, self._now()) for name, table in self._tables.items()}
        for name, version in found.items():
            self.read(name, version)
        return found

    def read(self, name: str, version: str) -> DataFrame:
        """The rows of one at a version."""
        if (name, version) not in self._read:
            rows = self._tables[name].read(self._spark, self._lake, version)
            self._read = {key: kept for key, kept in self._read.items() if key[0] != name}
            self._read[name, version] = rows
        return self._read[name, version]
