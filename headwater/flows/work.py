"""What is done with a batch's rows, and what the batch came to."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.connectors.decode.contract import Fields
from headwater.flows.answers import Answers
from headwater.flows.few import Few, Given, Here
from headwater.quality.gate import Gate
from headwater.quality.quarantine import ERROR_RULE, MALFORMED_RULE
from headwater.quality.tally import Tally
from headwater.runtime import in_memory
from headwater.storage.key_index import KeyIndex

ONE_TASK = 50_000  # rows; starting a second task costs more than it saves


@dataclass(frozen=True)
class Work:
    """What is done with a batch's rows.

    Attributes:
        spark: where the function runs.
        columns: what the input's files hold.
        schema: what the decoder takes of `value`; None where there is nothing to decode.
        function: the table's definition.
        gate: judges the rows that the function returns; None where nothing is expected of them.
        written: the files that the table holds; rules about keys look at them.
        near: those of them that may hold rows whose values lie in certain places, see `Target.near`; None:
            that is not known.
        ordered: whether rows are written in the order in which they came.
        indexes: of those files, by the keys of all such rules; none where a rule goes by more than keys.
        answers: what the rows are told by a lookup before the function sees them; None: nothing.
        few: what the function makes of few rows in memory, by what they are to Spark; None: that is not
            known beforehand.
        here: where that is computed; None: nothing is kept of it for the next batch.
    """

    spark: SparkSession
    columns: StructType
    schema: Fields | None
    function: Callable[[DataFrame], DataFrame]
    gate: Gate | None = None
    written: Callable[[], Sequence[str]] = list
    near: Callable[..., Collection[str]] | None = None
    ordered: bool = True
    indexes: Sequence[KeyIndex] = ()
    answers: Answers | None = None
    few: Callable[[pa.Table, StructType], Few] | None = None
    here: Here | None = None

    @property
    def tasks(self) -> int:
        """How many run at a time."""
        return int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)

    def rows(self, files: Sequence[str], rows: int) -> DataFrame:
        """The rows of files; where their order matters, in tasks of about equal size that follow the order of
        the files: Spark would pack them into tasks by their sizes, and write rows that came later before
        others."""
        if not self.ordered:
            return self.spark.read.schema(self.columns).parquet(*files)
        tasks = 1 if rows <= ONE_TASK else self.tasks
        sizes = [os.path.getsize(file) for file in files]
        ends, total = accumulate(sizes), sum(sizes)
        parts: dict[int, list[str]] = {}
        for file, size, end in zip(files, sizes, ends, strict=True):
            parts.setdefault((2 * end - size) * tasks // (2 * total), []).append(file)
        read = self.spark.read.schema(self.columns)
        return reduce(DataFrame.union, (read.parquet(*part).coalesce(1) for part in parts.values()))

    def of_few(self, rows: pa.Table, columns: StructType) -> Few:
        """What the function makes of rows in memory, by what they are to Spark."""
        if self.answers is not None:
            rows, columns = self.answers.few(rows, columns)
        if self.few is not None:
            return self.few(rows, columns)
        here = self._near_by
        return Few(here, (), [{"": here.given(rows, columns)}], lambda frames: self.function(frames[""]))

    def of_many(self, rows: DataFrame) -> DataFrame:
        """What it makes of rows in Spark."""
        return self.function(self.answers.many(rows) if self.answers is not None else rows)

    def judge(self, rows: DataFrame) -> DataFrame:
        """The rows that the function returned with what the gate knows of each."""
        assert self.gate is not None
        files = self.written() if self.gate.keyed else ()
        return self.gate.judge(rows, self._rows(files, rows.schema) if files else None)

    def _rows(self, files: Sequence[str], columns: StructType) -> DataFrame:
        """Rows of the table, by columns that its oldest files may lack."""
        return self.spark.read.schema(columns.toNullable()).parquet(*files)

    def alike(self, files: Sequence[str], columns: StructType) -> DataFrame | None:
        """The rows of the table that may have keys of rows in these files, which are not the table's yet, and
        others of it; None where there are none such."""
        held = self.written()
        found = [index.owners(held, files) for index in self.indexes]
        count = sum(rows for _, rows in found)
        if count > ONE_TASK:
            return self._rows(sorted({file for owners, _ in found for file in owners}), columns)
        alike = pa.concat_tables([index.rows(held, files) for index in self.indexes])
        return in_memory.frame(self.spark, alike, columns.toNullable()) if len(alike) else None

    def judge_few(self, rows: Few) -> Few:
        """The same of few rows, but for those as JSON that are held back; they are computed first where that
        tells which of the table's matter."""
        gate = self.gate
        assert gate is not None
        if not gate.keyed:
            return rows.then("judged", gate.verdicts)
        here, computed, columns = self._near_by, rows.rows, rows.schema
        inputs = {"rows": here.given(computed, columns)}
        if written := self._written(computed, columns):
            inputs["written"] = written
        return Few(here, ("judged",), [inputs], lambda at: gate.verdicts(at["rows"], at.get("written")))

    def _written(self, rows: pa.Table, columns: StructType) -> Given | None:
        """Those of the table's rows with which rows are compared; None where there are none."""
        assert self.gate is not None
        kinds = columns.toNullable()
        if not (files := self.written()):
            return None
        if self.indexes:
            alike = pa.concat_tables([index.rows(files, rows) for index in self.indexes])
            return self._near_by.given(alike, kinds) if len(alike) else None
        files = list(self.near(*(one.reach(rows) for one in self.gate.keyed))) if self.near else files
        return Given(kinds, None, lambda: self._rows(files, columns)) if files else None

    @property
    def _near_by(self) -> Here:
        return self.here or Here(self.spark)


@dataclass(frozen=True)
class Counts:
    """How many rows a batch took, and what became of them.

    Attributes:
        taken: how many there were.
        malformed: how many of them can't be decoded.
        broken: how many of them make the definition itself fail.
        tally: what the gate made of the rows that the others became.
    """

    taken: int = 0
    malformed: int = 0
    broken: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def held(self) -> int:
        """How many rows go to the quarantine."""
        return self.malformed + self.broken + self.tally.quarantined

    @property
    def failed(self) -> dict[str, int]:
        """{rule → rows that fail it}."""
        found = {MALFORMED_RULE: self.malformed, ERROR_RULE: self.broken, **self.tally.failed}
        return {rule: count for rule, count in found.items() if count}
