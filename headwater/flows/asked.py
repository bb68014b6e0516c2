"""What a view's query gives: of whole inputs, or of some of their rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.flows.context import Context
from headwater.flows.few import Few, Given, Here
from headwater.flows.inputs import Input
from headwater.flows.references import References
from headwater.planner import analysis, cut, groups, stages
from headwater.planner.cut import Cut
from headwater.planner.group_by import Taken
from headwater.project.definitions import Table
from headwater.storage import stored
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
        self._groups = context.tables[definition.name].groups
        self._stage = context.tables[definition.name].stage
        self.spark, self.here = spark, Here(spark)

    def of_all(self, intent: Intent, inputs: Mapping[str, Input], *, few: bool) -> Few | DataFrame:
        """What it gives of whole inputs, which have few rows or many."""
        tables = self._context.tables
        if few:
            return self.of(intent, {name: each.read(tables[name].columns) for name, each in inputs.items()})
        frames = {name: each.frame(self.spark, tables[name].columns) for name, each in inputs.items()}
        return self._made({**frames, **self._references.frames(intent.references)})

    def of(self, intent: Intent, rows: Mapping[str, pa.Table]) -> Few:
        """What it gives of some rows of inputs; it sees none of the others."""
        return Few(self.here, (), [self._some(intent, rows)], self._made)

    def over(self, intent: Intent, rows: Mapping[str, pa.Table], some: Mapping[str, Given]) -> Few:
        """What it makes of groups, and of some rows of what it reads beside them.

        Args:
            intent: the batch.
            rows: of some inputs; it sees none of the others.
            some: {name → some of the groups at which it is cut}.
        """
        ((name, _),) = some.items()
        inputs = {**self._some(intent, rows), **some}
        return Few(
            self.here,
            ("over",),
            [inputs],
            lambda frames: self.cut(self._made(frames)).over(self.spark, frames[name]),
        )

    def cut(self, result: DataFrame) -> Cut:
        """What it gave, cut where its groups are kept."""
        assert self._groups is not None
        part = cut.of(result, self._definition.where, innermost=self._groups.innermost)
        assert part is not None
        return part

    def state(self, result: DataFrame) -> DataFrame:
        """What the groups are made of at which it is cut, of whole inputs."""
        assert self._groups is not None
        return groups.whole(self.spark, self.cut(result).taken, self._groups.outputs)

    def inner(self, result: DataFrame) -> tuple[Taken, stages.Inner]:
        """The GROUP BY at which it is cut, and its inner part, which it is known to have."""
        taken = self.cut(result).taken
        part = stages.inner(taken)
        assert part is not None
        return taken, part

    def inner_cut(self, result: DataFrame) -> Cut:
        """The inner part of what it gave, cut where its groups are kept."""
        part = cut.of(self.inner(result)[1].rows(self.spark), self._definition.where, innermost=False)
        assert part is not None
        return part

    def stage(self, result: DataFrame) -> DataFrame:
        """What is kept of its inner part, of whole inputs."""
        if self._stage is not None and self._stage.groups is not None:
            return groups.whole(self.spark, self.inner_cut(result).taken, self._stage.groups.outputs)
        return self.inner(result)[1].rows(self.spark)

    def _some(self, intent: Intent, rows: Mapping[str, pa.Table]) -> dict[str, Given]:
        """Some rows of each input, and the references as the batch reads them."""
        references = self._references.few(intent.references)
        some = {}
        for name in self._definition.sources:
            if name not in references:
                columns = self._context.tables[name].columns
                given = rows.get(name)
                some[name] = self.here.given(
                    stored.schema(columns).empty_table() if given is None else given, columns
                )
        return {**some, **references}

    def _made(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        sources = self._definition.sources
        return analysis.apply(self.spark, self._definition, [frames[name] for name in sources])
