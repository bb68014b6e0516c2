"""How a batch's rows get into Spark and out of it, in two ways that give the same rows.

A Spark job that reads files, decodes them in Python workers and writes files costs 0.2 s however few
the rows are. So few rows are read, decoded and written here, with Arrow, and computed as
`headwater.flows.few` says: a tenth of that. So are many that this process can hold, where DuckDB computes
what is made of them: Spark takes twice the time. What Spark has to compute, it is better to read, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.connectors import decode
from headwater.connectors.decode import MALFORMED, RAW, SOURCE
from headwater.flows.few import Refused
from headwater.flows.judged import FewJudged, ManyJudged, places
from headwater.flows.work import Counts, Work
from headwater.quality.gate import HASH, ROW
from headwater.quality.quarantine import ERROR_RULE, MALFORMED_RULE
from headwater.storage import stats, stored
from headwater.storage.places import PLACE, place_of, without
from headwater.storage.target import Target

REASON = "fails "
_RANK = "__rank"
_TEXTS = pa.list_(pa.string())
NONE_BROKEN = decode.REJECTED.empty_table()

FEW = 10_000  # rows
FEW_BYTES = 4 << 20  # of the files that hold them
MANY = 1_000_000  # rows
MANY_BYTES = 128 << 20  # of the columns in the files that hold them, before compression


class Rows(Protocol):
    """The rows of a batch: what the function makes of them, and what becomes of that."""

    def through(self, name: str, query: Callable[[DataFrame], DataFrame]) -> pa.Table:
        """What a query gives of what the function makes of the well-formed rows, not judged; in memory.

        Args:
            name: which query of the flow it is.
            query: the query.
        """

    def passed(self) -> DataFrame | pa.Table:
        """Of the result, the rows that pass the gate, as they are written."""

    def write(self, target: Target, batch: str) -> list[str]:
        """Write those as files of a table, see `Target.write`."""

    def counts(self) -> Counts:
        """What the batch came to; known once `passed` is written.

        Raises:
            FlowError: a record breaks a contract that stops the flow.
        """

    def held(self, clock: str) -> DataFrame | pa.Table:
        """The broken and malformed rows and those that the gate quarantines: the columns of a quarantine.

        Args:
            clock: the batch's time, which is their `quarantined_at`.
        """


def are_few(files: Sequence[str], rows: int) -> bool:
    """Whether the rows of these files are few."""
    return rows <= FEW and sum(os.path.getsize(file) for file in files) <= FEW_BYTES


def can_be_held(files: Sequence[str], rows: int) -> bool:
    """Whether the rows of these files are no more than this process can hold."""
    return rows <= MANY and sum(stats.size(Path(file)) for file in files) <= MANY_BYTES


def read(files: Sequence[str], columns: StructType) -> pa.Table:
    """The rows of files, in memory."""
    return stored.rows(files, stored.schema(columns))


class FewRows(FewJudged):
    """Rows that travel through this process: few, or more that DuckDB computes; see `Rows`.

    Args:
        work: what is done with them.
        raw: the rows.
        broken: those of them that make the definition fail, and why; see `decode.REJECTED`.
        many: whether they are more than Spark is given from memory; then what it would be asked for raises
            `Refused`.
    """

    def __init__(
        self, work: Work, raw: pa.Table, broken: pa.Table = NONE_BROKEN, *, many: bool = False
    ) -> None:
        self._all, self._broken = raw, broken
        self._raw = without(raw, broken) if len(broken) else raw
        self._reasons = pa.nulls(len(self._raw), pa.string())
        rows, columns = self._raw, work.columns
        if work.schema is not None:
            rows, self._reasons = decode.decoded_here(self._raw, work.schema)
            malformed = len(self._reasons) - self._reasons.null_count
            if many and malformed > decode.MOST:
                raise Refused(always=False)
            rows = rows.filter(pc.is_null(self._reasons)) if malformed else rows
            columns = decode.columns(work.schema, columns)
        result = work.of_few(rows, columns)
        super().__init__(work, result.of_many() if many else result, len(raw))

    def counts(self) -> Counts:
        """What the batch came to."""
        malformed = self._malformed()
        if self._work.schema is not None:
            self._work.schema.enforce(malformed)
        return replace(super().counts(), malformed=len(malformed), broken=len(self._broken))

    def held(self, clock: str) -> pa.Table:
        """The broken and malformed rows and those that the gate quarantines."""
        held = [(place_of(row), row["reason"], [ERROR_RULE], None) for row in self._broken.to_pylist()]
        held += [(tuple(place), reason, [MALFORMED_RULE], None) for *place, reason in self._malformed()]
        if self._judged is not None and len(self._judged):
            assert self._work.gate is not None
            failed = self._work.gate.ids(self._judged)
            sources, rows = self._judged[SOURCE].to_pylist(), self._judged[ROW].to_pylist()
            for source, rules, made in zip(sources, failed, rows, strict=True):
                held.append((place_of(source), REASON + ", ".join(rules), rules, made))
        places, reasons, rules_of, made_of = zip(*held, strict=True) if held else ((), (), (), ())
        offsets = pa.array({offset for *_, offset in places}, pa.int64())
        near = self._all.filter(pc.is_in(self._all["offset"], offsets))
        at = {place_of(row): at for at, row in enumerate(near.select(list(PLACE)).to_pylist())}
        when = pa.array([datetime.fromisoformat(clock)] * len(held), pa.timestamp("us", "UTC"))
        return (
            near.select(RAW)
            .take(pa.array([at[place] for place in places], pa.int64()))
            .append_column("reason", pa.array(reasons, pa.string()))
            .append_column("rules", pa.array(rules_of, pa.list_(pa.string())))
            .append_column("row", pa.array(made_of, pa.string()))
            .append_column("quarantined_at", when)
        )

    def _malformed(self) -> list[tuple[Any, ...]]:
        """Where each malformed row stands in Kafka (cluster, topic, partition, offset), and its reason."""
        if self._work.schema is None:
            return []
        bad = pc.is_valid(self._reasons)
        places = self._raw.select(list(PLACE)).filter(bad).to_pylist()
        reasons = self._reasons.filter(bad).to_pylist()
        return [(*place_of(place), reason) for place, reason in zip(places, reasons, strict=True)]


class ManyRows(ManyJudged):
    """Rows that stay in Spark; see `Rows` and `FewRows`.

    What is held back is told apart in the pass that decodes, judges and writes the others: only where
    those rows stand in Kafka, and a hash of each, comes back from it. In a second pass over their records
    alone, if there are any, they are made again and told by these. Where they are more than `decode.MOST`,
    which would be more than this process and the JVM keep in memory, all records go the same way once more.

    Args:
        work: what is done with them.
        files: which hold them.
        rows: how many there are.
        broken: those of them that make the definition fail, and why; see `decode.REJECTED`.
    """

    def __init__(self, work: Work, files: Sequence[str], rows: int, broken: pa.Table = NONE_BROKEN) -> None:
        self._all = work.rows(files, rows)
        self._broken = broken
        self._raw = decode.without(self._all, broken) if len(broken) else self._all
        self._decoded: Observation | None = None
        well_formed = self._raw
        if work.schema is not None:
            self._decoded = Observation()
            found = decode.decoded(self._raw, work.schema)
            found = found.observe(self._decoded, F.count("*").alias("all"), *decode.found())
            well_formed = found.where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        super().__init__(work, work.of_many(well_formed), rows)

    def counts(self) -> Counts:
        """What the batch came to; known once `passed` is written."""
        counts = replace(super().counts(), broken=len(self._broken))
        if self._decoded is None:
            return counts
        assert self._work.schema is not None
        found = self._decoded.get
        malformed = int(found["malformed"])
        self._work.schema.enforce(found["first"] or [], more=malformed > decode.MOST)
        return replace(counts, taken=int(found["all"]) + counts.broken, malformed=malformed)

    def held(self, clock: str) -> DataFrame:
        """The broken and malformed rows and those that the gate quarantines, read again."""
        at = F.lit(clock).cast("timestamp").alias("quarantined_at")
        none = F.lit(None).cast("string").alias("row")
        held = []
        for found, rule in ((self._malformed(), MALFORMED_RULE), (self._rejects(self._broken), ERROR_RULE)):
            rules = F.array(F.lit(rule)).alias("rules")
            held.append(found.select(*RAW, "reason", rules, none, at))
        if (quarantined := self._quarantined()) is not None:
            reason = F.concat(F.lit(REASON), F.array_join("rules", ", ")).alias("reason")
            held.append(quarantined.select(*RAW, reason, "rules", F.col(ROW).alias("row"), at))
        return reduce(DataFrame.unionByName, held).coalesce(1)

    def _quarantined(self) -> DataFrame | None:
        """The rows that the gate quarantined, with their records; where they are many, those that it does
        once more. None where there are none."""
        if self._judged is None:
            return None
        judged, seen = self._judged
        if seen.get["quarantined"] > decode.MOST:
            assert self._work.gate is not None
            return self._raw.join(self._work.gate.rejected(judged, places()), list(PLACE))
        rows = [row.asDict() for row in seen.get["held"] or ()]
        return self._made_again(rows) if rows else None

    def _made_again(self, judged: list[dict[str, Any]]) -> DataFrame:
        """Rows that the gate quarantined, made again from their records and told by their hashes."""
        gate, work = self._work.gate, self._work
        assert gate is not None and work.schema is not None
        alike: Counter[tuple[Any, ...]] = Counter()  # equal rows of one record: any of them may be the one
        lines = []
        for row in judged:
            key = (*place_of(row), row[HASH])
            alike[key] += 1
            lines.append((*key, alike[key], gate.ids_of(row)))
        kinds = pa.schema([*PLACE.items(), (HASH, pa.int64()), (_RANK, pa.int32()), ("rules", _TEXTS)])
        found = pa.Table.from_pylist([dict(zip(kinds.names, line, strict=True)) for line in lines], kinds)
        raw = decode.at(self._raw, found.select(list(PLACE)).group_by(list(PLACE)).aggregate([]))
        well_formed = decode.decoded(raw, work.schema).where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        rows = work.of_many(well_formed).select(*places(), gate.whole)
        told = F.broadcast(work.spark.createDataFrame(found))
        rows = rows.withColumn(HASH, F.xxhash64(ROW))
        equal = Window.partitionBy(*PLACE, HASH).orderBy(ROW)
        rows = rows.withColumn(_RANK, F.row_number().over(equal)).join(told, [*PLACE, HASH, _RANK])
        return raw.join(rows, list(PLACE))

    def _malformed(self) -> DataFrame:
        """The malformed rows, as they came; where they are many, those that are once more."""
        if self._decoded is None or self._work.schema is None:
            return self._rejects(NONE_BROKEN)
        found = self._decoded.get
        if found["malformed"] > decode.MOST:
            return decode.rejected(self._raw, self._work.schema)
        rows = [row.asDict() for row in found["first"] or ()]
        return self._rejects(pa.Table.from_pylist(rows, decode.REJECTED))

    def _rejects(self, rejected: pa.Table) -> DataFrame:
        return decode.rejects(self._all, rejected)
