"""How a batch's rows get into Spark and out of it again: many through files, few through this process.

A Spark job that reads files, decodes them in Python workers and writes files costs 0.2 s however few
the rows are. So few rows are read, decoded and written here, with Arrow, and Spark is given them in
memory: a quarter of that. From about 20,000 rows on, Spark's own way is the faster one. Both ways give
the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater import decode, stored
from headwater.contract import Fields
from headwater.decode import MALFORMED, PLACE, RAW, SOURCE
from headwater.quality.gate import QUARANTINE, ROW, VERDICT, Gate, Tally

MALFORMED_RULE = "malformed"  # what stands among the rules of a row that can't be decoded
REASON = "fails "

FEW = 10_000  # rows
FEW_BYTES = 4 << 20  # of the files that hold them
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
    """

    spark: SparkSession
    columns: StructType
    schema: Fields | None
    function: Callable[[DataFrame], DataFrame]
    gate: Gate | None = None


@dataclass(frozen=True)
class Counts:
    """How many rows a batch took, how many of them were malformed, and what the gate made of the rest."""

    taken: int = 0
    malformed: int = 0
    tally: Tally = field(default_factory=Tally)


class Rows(Protocol):
    """The rows of a batch: what the function makes of them, and what becomes of that."""

    @property
    def result(self) -> DataFrame:
        """What the function makes of the well-formed rows, not judged."""

    def passed(self) -> DataFrame | pa.Table:
        """Of the result, the rows that pass the gate, as they are written."""

    def counts(self) -> Counts:
        """What the batch came to; known once `passed` is written.

        Raises:
            FlowError: a record breaks a contract that stops the flow.
        """

    def held(self, clock: str) -> DataFrame | pa.Table:
        """The malformed rows and those that the gate quarantines: the columns of a quarantine.

        Args:
            clock: the batch's time, which is their `quarantined_at`.
        """


def are_few(files: Sequence[str], rows: int) -> bool:
    """Whether the rows of these files are few."""
    return rows <= FEW and sum(os.path.getsize(file) for file in files) <= FEW_BYTES


class FewRows:
    """Rows that travel through this process; see `Rows`."""

    def __init__(self, work: Work, files: Sequence[str]) -> None:
        self._work = work
        self._raw = ds.dataset(list(files), schema=stored.schema(work.columns)).to_table()
        self._reasons = pa.nulls(len(self._raw), pa.string())
        rows, columns = self._raw, work.columns
        if work.schema is not None:
            rows, self._reasons = decode.decoded_here(self._raw, work.schema)
            good = rows.filter(pc.is_null(self._reasons))
            rows = good if len(good) else good.schema.empty_table()  # Spark wants a chunk of each column
            columns = decode.columns(work.schema, columns)
        self.result = work.function(work.spark.createDataFrame(rows, columns).coalesce(1))
        self._judged: pa.Table | None = None
        self._tally = Tally()

    def passed(self) -> pa.Table:
        """Of the result, the rows that pass the gate, in memory."""
        gate = self._work.gate
        if gate is None:
            return self.result.toArrow()
        passed, self._judged, self._tally = gate.split(gate.judge(self.result).toArrow())
        return passed

    def counts(self) -> Counts:
        """What the batch came to."""
        malformed = pc.indices_nonzero(pc.is_valid(self._reasons))
        if self._work.schema is not None:
            places = self._raw.select(list(PLACE)).take(malformed).to_pylist()
            reasons = self._reasons.take(malformed).to_pylist()
            found = [Row(*place.values(), why) for place, why in zip(places, reasons, strict=True)]
            self._work.schema.enforce(found)
        return Counts(len(self._raw), len(malformed), self._tally)

    def held(self, clock: str) -> pa.Table:
        """The malformed rows and those that the gate quarantines."""
        bad = pc.indices_nonzero(pc.is_valid(self._reasons)).to_pylist()
        places, reasons = bad, self._reasons.take(pa.array(bad, pa.int64())).to_pylist()
        rules, rows = [[MALFORMED_RULE]] * len(bad), [None] * len(bad)
        if self._judged is not None and len(self._judged):
            assert self._work.gate is not None
            failed = self._work.gate.ids(self._judged)
            at = {self._place(row): place for place, row in enumerate(self._raw.select(PLACE).to_pylist())}
            places = bad + [at[self._place(row)] for row in self._judged[SOURCE].to_pylist()]
            reasons += [REASON + ", ".join(ids) for ids in failed]
            rules, rows = rules + failed, rows + self._judged[ROW].to_pylist()
        origin = self._raw.select(RAW).take(pa.array(places, pa.int64()))
        when = pa.array([datetime.fromisoformat(clock)] * len(places), pa.timestamp("us", "UTC"))
        return (
            origin.append_column("reason", pa.array(reasons, pa.string()))
            .append_column("rules", pa.array(rules, pa.list_(pa.string())))
            .append_column("row", pa.array(rows, pa.string()))
            .append_column("quarantined_at", when)
        )

    @staticmethod
    def _place(row: dict[str, object]) -> tuple[object, ...]:
        return tuple(row[name] for name in PLACE)


class ManyRows:
    """Rows that stay in Spark; see `Rows` and `FewRows`.

    What is held back is told apart in the pass that decodes, judges and writes the others: only where
    those rows stand in Kafka comes back from it. They are fetched, decoded and judged again in a second
    pass over these alone, if there are any.

    Args:
        rows: how many there are.
    """

    def __init__(self, work: Work, files: Sequence[str], rows: int) -> None:
        self._work = work
        raw = work.spark.read.schema(work.columns).parquet(*files)
        self._raw = raw.coalesce(1) if rows <= ONE_TASK else raw
        self._rows = rows
        self._decoded: Observation | None = None
        self._judged: Observation | None = None
        well_formed = self._raw
        if work.schema is not None:
            self._decoded = Observation()
            found = decode.decoded(self._raw, work.schema)
            found = found.observe(self._decoded, F.count("*").alias("all"), decode.found().alias("malformed"))
            well_formed = found.where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        self.result = work.function(well_formed)

    def passed(self) -> DataFrame:
        """Of the result, the rows that pass the gate, to be computed as they are written."""
        gate = self._work.gate
        if gate is None:
            return self.result
        self._judged = Observation()
        quarantined = F.when(F.col(VERDICT) == QUARANTINE, F.struct(*_places()))
        places = F.collect_set(quarantined).alias("places")
        return gate.passed(gate.judge(self.result).observe(self._judged, *gate.metrics(), places))

    def counts(self) -> Counts:
        """What the batch came to; known once `passed` is written."""
        taken = self._rows if self._decoded is None else int(self._decoded.get["all"])
        malformed = self._malformed()
        if self._work.schema is not None:
            self._work.schema.enforce(malformed)
        tally = Tally()
        if self._judged is not None:
            assert self._work.gate is not None
            tally = self._work.gate.tally(self._judged.get)
        return Counts(taken, len(malformed), tally)

    def held(self, clock: str) -> DataFrame:
        """The malformed rows and those that the gate quarantines, read again."""
        at = F.lit(clock).cast("timestamp").alias("quarantined_at")
        rule, row = F.array(F.lit(MALFORMED_RULE)).alias("rules"), F.lit(None).cast("string").alias("row")
        malformed = decode.rejects(self._raw, self._malformed()).select(*RAW, "reason", rule, row, at)
        if self._judged is None or not self._judged.get["places"]:
            return malformed.coalesce(1)
        gate, work = self._work.gate, self._work
        assert gate is not None and work.schema is not None
        raw = decode.at(self._raw, self._judged.get["places"])
        well_formed = decode.decoded(raw, work.schema).where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        judged = gate.judge(work.function(well_formed)).where(F.col(VERDICT) == QUARANTINE)
        failing = judged.select(*_places(), gate.failing.alias("rules"), F.col(ROW).alias("row"))
        reason = F.concat(F.lit(REASON), F.array_join("rules", ", ")).alias("reason")
        rows = raw.join(failing, list(PLACE)).select(*RAW, reason, "rules", "row", at)
        return malformed.unionByName(rows).coalesce(1)

    def _malformed(self) -> list[Row]:
        return [] if self._decoded is None else list(self._decoded.get["malformed"])


def _places() -> list[Column]:
    return [F.col(f"{SOURCE}.{name}").alias(name) for name in PLACE]
