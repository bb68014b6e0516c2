"""What a query gives of few rows: computed by DuckDB where that gives what Spark gives, else by Spark.

A flow asks the same of each batch: the query is translated once, and only its rows are others
(`headwater.planner.translation`). So a query's function is called with DataFrames that have no rows, and with
those of a batch only where Spark is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.planner.translation.carrying import Carried
from headwater.runtime import in_memory

Frames: TypeAlias = Mapping[str, DataFrame]


class Refused(Exception):  # noqa: N818 (nothing is wrong)
    """DuckDB does not compute what is asked of many rows, which Spark is to read itself.

    Args:
        always: whether of none: a part of the query is not translated.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__(always)
        self.always = always


@dataclass(frozen=True)
class Given:
    """What a query reads.

    Attributes:
        columns: its columns, to Spark.
        rows: its rows; None: they are too many for this process.
        frame: gives them to Spark.
    """

    columns: StructType
    rows: pa.Table | None
    frame: Callable[[], DataFrame]


class Here:
    """The queries of one flow that are carried out in this process.

    Args:
        spark: the session that is asked else.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._known: dict[tuple[str, ...], Carried] = {}

    def given(self, rows: pa.Table, columns: StructType) -> Given:
        """Rows in memory."""
        return Given(columns, rows, lambda: in_memory.frame(self.spark, rows, columns).coalesce(1))

    def carried(
        self, key: Sequence[str], inputs: Mapping[str, Given], function: Callable[[Frames], DataFrame]
    ) -> Carried:
        """A query, translated."""
        columns = {name: each.columns for name, each in inputs.items()}
        whole = (*key, *columns, *(each.json() for each in columns.values()))
        if whole not in self._known:
            self._known[whole] = Carried(self.spark, columns, function)
        return self._known[whole]


class Few:
    """What a query gives of few rows, computed when it is asked for.

    Args:
        here: where it is computed.
        key: which query of the flow it is.
        inputs: what it reads, by name; of several such sets, what it gives of each, one after the other.
        function: the query.
        many: whether its rows are more than Spark is given from memory.

    Attributes:
        is_many: whether they are.
    """

    def __init__(
        self,
        here: Here,
        key: Sequence[str],
        inputs: Sequence[Mapping[str, Given]],
        function: Callable[[Frames], DataFrame],
        *,
        many: bool = False,
    ) -> None:
        self._here, self._key, self._inputs, self._function = here, key, inputs, function
        self.is_many = many
        self._rows: pa.Table | None = None
        self._frame: DataFrame | None = None

    def then(self, name: str, function: Callable[[DataFrame], DataFrame]) -> Few:
        """What another query gives of what this one gives, of each set by itself."""
        inner = self._function
        return self._with((*self._key, name), lambda frames: function(inner(frames)))

    def of_many(self) -> Few:
        """The same, which raises `Refused` where Spark would be asked."""
        return self._with(self._key, self._function, many=True)

    def _with(
        self, key: Sequence[str], function: Callable[[Frames], DataFrame], *, many: bool = False
    ) -> Few:
        return Few(self._here, key, self._inputs, function, many=many or self.is_many)

    @property
    def is_carried(self) -> bool:
        """Whether DuckDB computes it, as far as that is known without rows."""
        inputs = self._inputs[0]
        return all(each.rows is not None for each in inputs.values()) and self._carried(inputs).is_known

    @property
    def rows(self) -> pa.Table:
        """The rows."""
        if self._rows is None:
            self._rows = pa.concat_tables([self._of(each) for each in self._inputs])
        return self._rows

    @property
    def frame(self) -> DataFrame:
        """The same, as Spark computes them."""
        if self.is_many:
            raise Refused(always=True)
        if self._frame is None:
            frames = [self._function({n: one.frame() for n, one in each.items()}) for each in self._inputs]
            self._frame = reduce(DataFrame.union, frames).coalesce(1) if len(frames) > 1 else frames[0]
        return self._frame

    @property
    def schema(self) -> StructType:
        """The columns, to Spark."""
        return self._carried(self._inputs[0]).columns

    def _carried(self, inputs: Mapping[str, Given]) -> Carried:
        return self._here.carried(self._key, inputs, self._function)

    def _of(self, inputs: Mapping[str, Given]) -> pa.Table:
        rows = {name: each.rows for name, each in inputs.items() if each.rows is not None}
        if len(rows) == len(inputs):
            carried = self._carried(inputs)
            found = carried(rows)
            if found is not None:
                return found
            if self.is_many:
                raise Refused(always=not carried.is_known)
        elif self.is_many:
            raise Refused(always=True)
        return self._function({name: each.frame() for name, each in inputs.items()}).toArrow()
