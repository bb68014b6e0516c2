"""A table's definition, ready to be applied to batches: its session, its decoder, its reference tables."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from headwater import analysis, decode
from headwater import spark as sessions
from headwater.definitions import Table
from headwater.flows.context import Context
from headwater.flows.rows import Work
from headwater.target import Target


class Applied:
    """The definition of one table in one run.

    Args:
        context: the run.
        table: the definition.
    """

    def __init__(self, context: Context, table: Table) -> None:
        self.table = table
        self.analysed = context.tables[table.name]
        self.stream = next(s for s in table.sources if s not in context.project.references)
        self.columns = context.tables[self.stream].columns
        self._context = context
        decoder = table.decode
        self._decoded = decode.fields(decoder, f"{table.file}: {table.name}") if decoder else None
        parallelism = table.limits.parallelism or context.project.conf.parallelism
        self._spark = sessions.child(context.spark, parallelism=parallelism)
        self._read: dict[tuple[str, str], DataFrame] = {}

    def pinnable(self) -> dict[str, str]:
        """The version of each reference table, read before it is pinned.

        A pinned batch is done again from what it pinned: a broken file must not get that far, or mending
        it would not help.
        """
        references = self._context.project.references
        found = {
            name: references[name].version(self._context.lake.root)
            for name in self.table.sources
            if name in references
        }
        for name, version in found.items():
            self._reference(name, version)
        return found

    def work(self, references: Mapping[str, str], table: Target) -> Work:
        """What is done with a batch for the table, with each reference table at its version."""
        return Work(
            spark=self._spark,
            columns=self.columns,
            schema=self._decoded,
            function=lambda stream: self._apply(stream, references),
            gate=self.analysed.gate,
            written=table.files,
        )

    def _apply(self, stream: DataFrame, references: Mapping[str, str]) -> DataFrame:
        frames = [
            self._reference(name, references[name]) if name in references else stream
            for name in self.table.sources
        ]
        return analysis.apply(self._spark, self.table, frames)

    def _reference(self, name: str, version: str) -> DataFrame:
        """A reference table's rows, read once per version."""
        if (name, version) not in self._read:
            reference = self._context.project.references[name]
            rows = reference.read(self._spark, self._context.lake.root, version)
            self._read = {key: kept for key, kept in self._read.items() if key[0] != name}
            self._read[name, version] = rows
        return self._read[name, version]
