"""How a batch's rows get into Spark and out of it again: many through files, few through this process.

A Spark job that reads files, decodes them in Python workers and writes files costs 0.2 s however few
the rows are. So few rows are read, decoded and written here, with Arrow, and Spark is given them in
memory: a quarter of that. From about 20,000 rows on, Spark's own way is the faster one. Both ways give
the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater import decode, stored
from headwater.decode import MALFORMED, RAW

FEW = 10_000  # rows
FEW_BYTES = 4 << 20  # of the files that hold them
ONE_TASK = 50_000  # rows; starting a second task costs more than it saves


class Rows(Protocol):
    """The rows that a batch takes: what the function sees of them, and what becomes of them."""

    @property
    def input(self) -> DataFrame:
        """What the function sees: the decoder's columns, or the source's; no malformed rows."""

    def output(self, result: DataFrame) -> DataFrame | pa.Table:
        """The function's result, as it is written."""

    def count(self) -> int:
        """How many rows the batch takes, malformed ones too; known once its output is written."""

    def malformed(self) -> int:
        """How many of them are malformed; known once its output is written."""

    def rejects(self, clock: str) -> DataFrame | pa.Table:
        """The malformed rows as they came: the columns of a quarantine.

        Args:
            clock: the batch's time, which is their `quarantined_at`.
        """


def are_few(files: Sequence[str], rows: int) -> bool:
    """Whether the rows of these files are few."""
    return rows <= FEW and sum(os.path.getsize(file) for file in files) <= FEW_BYTES


class FewRows:
    """Rows that travel through this process; see `Rows`.

    Args:
        spark: where the function runs.
        files: the Parquet files that hold the rows.
        columns: what the files hold.
        schema: what the decoder makes of `value`; None where there is nothing to decode.
    """

    def __init__(
        self, spark: SparkSession, files: Sequence[str], columns: StructType, schema: StructType | None
    ) -> None:
        self._raw = ds.dataset(list(files), schema=stored.schema(columns)).to_table()
        self._reasons = pa.nulls(len(self._raw), pa.string())
        rows = self._raw
        if schema is not None:
            rows, self._reasons = decode.decoded_here(self._raw, schema)
            good = rows.filter(pc.is_null(self._reasons))
            rows = good if len(good) else good.schema.empty_table()  # Spark wants a chunk of each column
            columns = decode.columns(schema, columns)
        self.input = spark.createDataFrame(rows, columns).coalesce(1)

    def output(self, result: DataFrame) -> pa.Table:
        """The function's result, in memory."""
        return result.toArrow()

    def count(self) -> int:
        """How many rows the batch takes."""
        return len(self._raw)

    def malformed(self) -> int:
        """How many of them are malformed."""
        return int(pc.sum(pc.is_valid(self._reasons), min_count=0).as_py())

    def rejects(self, clock: str) -> pa.Table:
        """The malformed rows as they came."""
        bad = pc.is_valid(self._reasons)
        rows = self._raw.select(RAW).filter(bad)
        at = pa.array([datetime.fromisoformat(clock)] * len(rows), pa.timestamp("us", "UTC"))
        reasons = self._reasons.filter(bad)
        return rows.append_column("reason", reasons).append_column("quarantined_at", at)


class ManyRows:
    """Rows that stay in Spark; see `Rows` and `FewRows`.

    The malformed are told apart in the pass that decodes and writes the others: only where they stand
    comes back from it, and they are fetched in a second pass, if there are any.

    Args:
        rows: how many there are.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: Sequence[str],
        columns: StructType,
        schema: StructType | None,
        rows: int,
    ) -> None:
        raw = spark.read.schema(columns).parquet(*files)
        self._raw = raw.coalesce(1) if rows <= ONE_TASK else raw
        self._rows = rows
        self._seen: Observation | None = None
        self.input = self._raw
        if schema is not None:
            self._seen = Observation()
            found = decode.decoded(self._raw, schema)
            found = found.observe(self._seen, F.count("*").alias("all"), decode.found().alias("malformed"))
            self.input = found.where(F.col(MALFORMED).isNull()).drop(MALFORMED)

    def output(self, result: DataFrame) -> DataFrame:
        """The function's result, to be computed as it is written."""
        return result

    def count(self) -> int:
        """How many rows the batch takes; known once its output is written."""
        return self._rows if self._seen is None else int(self._seen.get["all"])

    def malformed(self) -> int:
        """How many of them are malformed; known once its output is written."""
        return 0 if self._seen is None else len(self._seen.get["malformed"])

    def rejects(self, clock: str) -> DataFrame:
        """The malformed rows as they came, read again."""
        assert self._seen is not None
        at = F.lit(clock).cast("timestamp").alias("quarantined_at")
        return decode.rejects(self._raw, self._seen.get["malformed"]).select("*", at).coalesce(1)
