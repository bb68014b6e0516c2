"""What a view's query gives: of whole inputs, or of some of their rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.flows.context import Context
from headwater.flows.inputs import Input
from headwater.flows.references import References
from headwater.planner import analysis, group_by
from headwater.planner.group_by import Taken
from headwater.project.definitions import Table
from headwater.runtime import in_memory
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
        self.spark = spark

    def of_all(self, intent: Intent, inputs: Mapping[str, Input]) -> DataFrame:
        """What it gives of whole inputs."""
        return self._applied(intent, {name: self._frame(name, each) for name, each in inputs.items()})

    def of(self, intent: Intent, rows: Mapping[str, pa.Table]) -> DataFrame:
        """What it gives of some rows of each input."""
        tables = self._context.tables
        frames = {
            name: in_memory.frame(self.spark, some, tables[name].columns) for name, some in rows.items()
        }
        return self._applied(intent, {name: frame.coalesce(1) for name, frame in frames.items()})

    def taken(self, result: DataFrame) -> Taken:
        """An aggregate that it gave, taken apart."""
        return group_by.take(result, self._definition.where)

    def _applied(self, intent: Intent, frames: Mapping[str, DataFrame]) -> DataFrame:
        def frame(name: str) -> DataFrame:
            if name in self._references:
                return self._references.read(name, intent.references[name])
            return frames[name]

        return analysis.apply(self.spark, self._definition, [*map(frame, self._definition.sources)])

    def _frame(self, name: str, found: Input) -> DataFrame:
        return found.frame(self.spark, self._context.tables[name].columns)
