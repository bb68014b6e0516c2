"""Rows that are not there: what a function gets to be called without a lake, so that it shows what it reads.

A stand-in answers as a DataFrame of unknown columns does; what it would compute, keep or write at once is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, DataFrameNaFunctions, DataFrameStatFunctions
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.group import GroupedData
from pyspark.sql.types import StructType

from headwater.project.pipelines.kafka import Read
from headwater.project.pipelines.refusal import refuse

_COMPUTE = "a definition says what the rows are and computes none; make it part of the query"
_WRITE = "return the rows; what takes them elsewhere is a sink, see hw.kafka_sink and its like"
_KEEP = "leave it out; a table, or a @dp.temporary_view, is what several read"
REFUSED = {
    **dict.fromkeys(
        [
            *("approxQuantile", "collect", "corr", "count", "cov", "crosstab", "describe", "first"),
            *("foreach", "foreachPartition", "freqItems", "head", "inputFiles", "isEmpty", "pandas_api"),
            *("plot", "rdd", "sampleBy", "show", "summary", "tail", "take", "toArrow", "toJSON"),
            *("toLocalIterator", "toPandas", "transpose"),
        ],
        _COMPUTE,
    ),
    **dict.fromkeys(["mergeInto", "write", "writeStream", "writeTo"], _WRITE),
    **dict.fromkeys(["cache", "checkpoint", "localCheckpoint", "persist", "unpersist"], _KEEP),
    **dict.fromkeys(
        [
            *("createGlobalTempView", "createOrReplaceGlobalTempView", "createOrReplaceTempView"),
            *("createTempView", "registerTempTable"),
        ],
        "declare it: a function under @dp.temporary_view",
    ),
    "sparkSession": "use spark, which the file has",
}
_AT_ONCE = ("plot", "rdd", "sparkSession", "write", "writeStream")  # these are no methods
_GROUPED = ("cube", "groupBy", "groupby", "groupingSets", "rollup")
_OF_FRAMES = frozenset(name for name in dir(DataFrame) if not name.startswith("_"))
_OF_GROUPS = frozenset(name for name in dir(GroupedData) if not name.startswith("_"))
_PARTS = {"na": frozenset(dir(DataFrameNaFunctions)), "stat": frozenset(dir(DataFrameStatFunctions))}


class StandIn:
    """A DataFrame without rows, of which nobody knows the columns.

    Attributes:
        isStreaming: whether it follows from a stream.
        topic: the read of Kafka whose records it is, as they came; None: it is something else.
    """

    def __init__(
        self, watermark: Callable[[str, str], None], *, stream: bool, topic: Read | None = None
    ) -> None:
        self._watermark, self.isStreaming, self.topic = watermark, stream, topic

    @property
    def __class__(self) -> type:
        """What `isinstance` is told."""
        return ClassicDataFrame

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError

    def __getattr__(self, name: str) -> Any:
        if name in REFUSED:
            return self._refused(name)
        if name in _GROUPED:
            return lambda *columns, **options: _Groups(self, _OF_GROUPS)
        if name in _PARTS:
            return _Part(self, _PARTS[name])
        if name in _OF_FRAMES:
            return self._derived
        if name.startswith("_"):
            raise AttributeError(name)
        return F.col(name)

    def __getitem__(self, item: Any) -> Any:
        return F.col(item) if isinstance(item, str) else self._derived(item)

    @property
    def columns(self) -> list[str]:
        """None that are known."""
        return []

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """None that are known."""
        return []

    @property
    def schema(self) -> StructType:
        """Nothing that is known."""
        return StructType()

    def __dir__(self) -> list[str]:
        return sorted(_OF_FRAMES)

    def transform(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the function makes of it."""
        return function(self, *args, **kwargs)

    def withWatermark(self, column: str, delay: str) -> StandIn:  # noqa: N802 (Spark's name)
        """It tells the time by a column."""
        self._watermark(column, delay)
        return self._derived()

    def randomSplit(self, weights: list[float], seed: int | None = None) -> list[StandIn]:  # noqa: N802
        """As many parts as there are weights."""
        return [self._derived() for _ in weights]

    def colRegex(self, name: str) -> Column:  # noqa: N802
        """Columns."""
        return F.col(name)

    metadataColumn = colRegex  # noqa: N815

    def _derived(self, *others: Any, **options: Any) -> StandIn:
        streams = [other.isStreaming for other in others if type(other) is StandIn]
        return StandIn(self._watermark, stream=any([self.isStreaming, *streams]))

    def _refused(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            refuse(f"calls {name}", REFUSED[name])

        if name in _AT_ONCE:
            refuse(f"uses {name}", REFUSED[name])
        return call


class _Part:
    """What of a DataFrame has methods of its own, each of which makes one."""

    def __init__(self, rows: StandIn, known: frozenset[str]) -> None:
        self._rows, self._known = rows, known

    def __getattr__(self, name: str) -> Any:
        if name in REFUSED and name not in _OF_GROUPS:
            return self._rows._refused(name)
        if name not in self._known:
            raise AttributeError(name)
        return self._rows._derived


class _Groups(_Part):
    """Rows in groups."""

    def pivot(self, column: str, values: list[Any] | None = None) -> _Groups:
        """Groups by the values of a column, which have to be said: else rows are computed to find them."""
        if values is None:
            refuse("pivots by values that it does not say", "write .pivot(column, [values])")
        return self
