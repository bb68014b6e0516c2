"""A table's definition, ready to be applied to batches: its session, its decoder, its reference tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.connectors import decode
from headwater.flows.answers import Answers
from headwater.flows.context import Context
from headwater.flows.few import Few, Given, Here
from headwater.flows.lookups import Lookups
from headwater.flows.references import References
from headwater.flows.work import Work
from headwater.planner import analysis
from headwater.project.definitions import Table
from headwater.runtime import catalyst, sessions
from headwater.storage.key_index import KeyIndex
from headwater.storage.lake import Place
from headwater.storage.names import lookup_name
from headwater.storage.target import Target


class Applied:
    """The definition of one table in one run.

    Args:
        context: the run.
        table: the definition.
    """

    def __init__(self, context: Context, table: Table) -> None:
        self.table = table
        self.analysed = context.tables[table.name]
        self.stream = context.project.streams(table)[0]
        self.columns = context.tables[self.stream].columns
        self._context = context
        decoder = table.decode
        self._decoded = decode.fields(decoder, table.where) if decoder else None
        parallelism = table.limits.parallelism or context.project.conf.parallelism
        self._spark = sessions.child(context.spark, parallelism=parallelism)
        self._here = Here(self._spark)
        self.references = References(context, table, self._spark)
        self.lookups = (
            Lookups(context, table, analysis.decoded_columns(table, self.columns)) if table.lookup else None
        )
        gate = self.analysed.gate
        self._indexes = [KeyIndex(keys, self.analysed.stored) for keys in (gate.alone or () if gate else ())]

    def answers(self, table: Target | None, clock: str) -> Answers | None:
        """What the rows of one batch are told by the table's lookup; None where it has none.

        Args:
            table: the table that it is for; None: an empty one.
            clock: the batch's time.
        """
        return Answers(self.lookups, table, clock) if self.lookups else None

    def told(self, table: Place) -> Target:
        """The table of answers beside a table: made if it is missing. Of a definition that asks no more it is
        the one that there is, to which an earlier definition's batch may have staged some."""
        if self.lookups is not None:
            return self.lookups.target(table)
        return Target.shared(self._context.lake.place(lookup_name(table.name)))

    def work(
        self, references: Mapping[str, str], table: Target | None, answers: Answers | None = None
    ) -> Work:
        """What is done with a batch.

        Args:
            references: each reference table's version.
            table: the table that it is for; None: an empty one.
            answers: what its rows are told.
        """
        return Work(
            spark=self._spark,
            columns=self.columns,
            schema=self._decoded,
            function=lambda stream: self.rows({self.stream: stream}, references),
            few=lambda rows, columns: self.few([{self.stream: self._here.given(rows, columns)}], references),
            answers=answers,
            here=self._here,
            gate=self.analysed.gate,
            written=table.files if table else list,
            near=table.near if table else None,
            indexes=self._indexes,
        )

    def rows(self, streams: Mapping[str, DataFrame], versions: Mapping[str, str]) -> DataFrame:
        """What the definition makes of rows of its streams.

        Args:
            streams: {stream → rows of it}.
            versions: {reference table → at which version}.
        """
        return self._made({**streams, **self.references.frames(versions)})

    def few(self, streams: Sequence[Mapping[str, Given]], versions: Mapping[str, str]) -> Few:
        """The same of few rows: of each set of them by itself."""
        read = self.references.few(versions)
        return Few(self._here, (), [{**each, **read} for each in streams], self._made)

    def given(self, rows: pa.Table, columns: StructType) -> Given:
        """Rows in memory."""
        return self._here.given(rows, columns)

    def _made(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        rows = analysis.apply(self._spark, self.table, [frames[name] for name in self.table.sources])
        return (
            rows.select(*map(catalyst.named, self.analysed.columns.fieldNames())) if self.table.into else rows
        )
