"""Columns that a query leaves out and its table has to keep; see `headwater.project.carried`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from headwater.runtime import catalyst


def kept(result: DataFrame, columns: Sequence[str]) -> DataFrame:
    """What a query gives, and behind that the columns which it omits of the rows that it reads.

    Spark adds them itself where rows are sorted by a column that a query leaves out; that plan is taken,
    below its sort. It finds none behind a subquery or a UNION, or where several have the name: then all is
    left as it is.
    """
    missing = [name for name in columns if name not in result.columns]
    if not missing or catalyst.has(catalyst.analysed(result), "AGGREGATE"):
        return result
    for name in missing:
        try:
            sort = catalyst.analysed(result.sort(catalyst.named(name))).child()
        except AnalysisException:
            continue
        if catalyst.kind(sort) == "Sort":
            result = catalyst.frame(result.sparkSession, sort.child())
    return result
