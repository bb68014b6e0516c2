"""What a view's query gives: of whole inputs, or of some of their rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.flows.context import Context
from headwater.flows.few import Few, Here
from headwater.flows.inputs import Input
from headwater.flows.references import References
from headwater.planner import analysis, group_by, stages
from headwater.planner.group_by import Taken
from headwater.project.definitions import Table
from headwater.storage.intent import Intent


class Query:
    """A view's query.

    Args:
        context: the run.
        definition: the view's.
        spark: the session that computes.
        references: the reference tables that it reads.
    """

    def __init__(
        self, context: Context, definition: Table, spark: SparkSession, references: References
    ) -> None:
        self._context, self._definition, self._references = context, definition, references
        self.spark, self.here = spark, Here(spark)

    def of_all(self, intent: Intent, inputs: Mapping[str, Input], *, few: bool) -> Few | DataFrame:
        """What it gives of whole inputs, which have few rows or many."""
        tables = self._context.tables
        if few:
            return self.of(intent, {name: each.read(tables[name].columns) for name, each in inputs.items()})
        frames = {name: each.frame(self.spark, tables[name].columns) for name, each in inputs.items()}
        return self._made({**frames, **self._references.frames(intent.references)})

    def of(self, intent: Intent, rows: Mapping[str, pa.Table]) -> Few:
        """What it gives of some rows of each input."""
        tables = self._context.tables
        some = {name: self.here.given(each, tables[name].columns) for name, each in rows.items()}
        return Few(self.here, (), [{**some, **self._references.few(intent.references)}], self._made)

    def taken(self, result: DataFrame) -> Taken:
        """An aggregate that it gave, taken apart."""
        return group_by.take(result, self._definition.where)

    def inner(self, result: DataFrame) -> tuple[Taken, stages.Inner]:
        """The same, and its inner part, which it is known to have."""
        taken = self.taken(result)
        part = stages.inner(taken)
        assert part is not None
        return taken, part

    def _made(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        sources = self._definition.sources
        return analysis.apply(self.spark, self._definition, [frames[name] for name in sources])
