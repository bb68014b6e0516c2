"""A table as it is read whole: its files, and how many rows they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.flows.rows import are_few, read
from headwater.runtime import in_memory
from headwater.storage import pruning, snapshots, stored
from headwater.storage.lake import Place


@dataclass(frozen=True)
class Input:
    """A table at a version.

    Attributes:
        files: {absolute path → bytes}.
        rows: how many; None: its log does not say.
        adds: the files as delta-rs tells them; None: there are none.
    """

    files: dict[str, int]
    rows: int | None
    adds: pa.Table | None = None

    @classmethod
    def at(cls, place: Place, version: int) -> Input:
        """A table at a version."""
        adds = snapshots.adds(place.path, version)
        if not len(adds):
            return cls({}, 0)
        files = pruning.near(place.path, adds, {})
        rows_of = adds["num_records"].to_pylist() if "num_records" in adds.column_names else [None]
        rows = None if None in rows_of else sum(rows_of)
        return cls(files, rows, adds)

    def is_at_most(self, rows: int) -> bool:
        """Whether it has no more rows than that, as far as is known."""
        return self.rows is not None and self.rows <= rows

    def read(self, columns: StructType) -> pa.Table:
        """Its rows, in memory."""
        return read([*self.files], columns) if self.files else stored.schema(columns).empty_table()

    def frame(self, spark: SparkSession, columns: StructType) -> DataFrame:
        """Its rows, in memory where they are few."""
        if not self.files:
            return in_memory.empty(spark, columns)
        if self.rows is not None and are_few([*self.files], self.rows):
            return in_memory.frame(spark, self.read(columns).combine_chunks(), columns).coalesce(1)
        return spark.read.schema(columns).parquet(*self.files)


def size(inputs: Mapping[str, Input]) -> int:
    """How many bytes the files of some tables have."""
    return sum(sum(each.files.values()) for each in inputs.values())
