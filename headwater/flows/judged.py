"""What a definition has made of a batch's rows: the gate judges it, and what passes is written.

In memory where it is little, in the pass that computes it where it is much; see `headwater.flows.rows`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from headwater.connectors import decode
from headwater.connectors.decode import SOURCE
from headwater.flows.few import Few, Refused
from headwater.flows.work import Counts, Work
from headwater.quality.gate import QUARANTINE, VERDICT
from headwater.quality.quarantine import HELD
from headwater.quality.tally import Tally
from headwater.storage import stored
from headwater.storage.places import PLACE
from headwater.storage.target import Target


class FewJudged:
    """Rows that are judged in memory.

    Args:
        work: what is done with the batch.
        result: what its definition made.
        taken: of how many rows.

    Attributes:
        result: what the definition made.
    """

    def __init__(self, work: Work, result: Few, taken: int) -> None:
        self._work, self.result, self._taken = work, result, taken
        self._judged: pa.Table | None = None
        self._tally = Tally()

    @property
    def is_carried(self) -> bool:
        """Whether DuckDB computes and judges them, as far as that is known without rows."""
        gate = self._work.gate
        if gate is not None and (gate.keyed or gate.measures):
            return False
        return (self.result if gate is None else self._work.judge_few(self.result)).is_carried

    def passed(self) -> pa.Table:
        """Of the result, the rows that pass the gate, in memory.

        Raises:
            Refused: they are many, and Spark is to compute or judge them.
        """
        gate = self._work.gate
        if gate is None:
            return self.result.rows
        judged, seen = self._work.judge_few(self.result), Observation()
        if gate.measures:
            frame = gate.whole_of(judged.frame).observe(seen, *gate.measurements())
            rows = frame.toArrow()
        else:
            if judged.is_many:
                held = pc.greater_equal(judged.rows[VERDICT], QUARANTINE)
                if pc.sum(held, min_count=0).as_py() > decode.MOST:
                    raise Refused(always=False)
            rows = gate.told(self._work.spark, judged.rows, judged.schema)
        passed, self._judged, self._tally = gate.split(rows, seen.get if gate.measures else {})
        return passed

    def through(self, name: str, query: Callable[[DataFrame], DataFrame]) -> pa.Table:
        """What a query gives of the result, in memory."""
        return self.result.then(name, query).rows

    def write(self, target: Target, batch: str) -> list[str]:
        """Write those as files of a table."""
        return target.write(self.passed(), batch)

    def counts(self) -> Counts:
        """What the batch came to."""
        return Counts(self._taken, tally=self._tally)

    def held(self, clock: str) -> pa.Table | DataFrame:
        """No rows: what has no records of its own is not held back."""
        return stored.schema(HELD).empty_table()


class ManyJudged:
    """Rows that are judged as they are computed and written; see `FewJudged`."""

    def __init__(self, work: Work, result: DataFrame, taken: int) -> None:
        self._work, self.result, self._taken = work, result, taken
        self._judged: tuple[DataFrame, Observation] | None = None

    def through(self, name: str, query: Callable[[DataFrame], DataFrame]) -> pa.Table:
        """What a query gives of the result, in memory."""
        return query(self.result).toArrow()

    def passed(self) -> DataFrame:
        """Of the result, the rows that pass the gate, to be computed as they are written."""
        return self.result if self._work.gate is None else self._passed(self._work.judge(self.result))

    def _passed(self, judged: DataFrame) -> DataFrame:
        gate = self._work.gate
        assert gate is not None
        seen = Observation()
        self._judged = judged, seen
        held = [gate.held(places(), decode.MOST).alias("held")] if self._work.schema is not None else []
        return gate.passed(judged.observe(seen, *gate.metrics(), *held))

    def write(self, target: Target, batch: str) -> list[str]:
        """Write those as files of a table.

        Where rules about keys compare them with rows of the table, they are written as if that had none with
        their keys, and once more if it has: that is looked up by the keys of what was written.
        """
        gate, work = self._work.gate, self._work
        if gate is None or not work.indexes or not work.written():
            return target.write(self.passed(), batch)
        files = target.write(self._passed(gate.judge(self.result)), batch)
        paths = [str(target.place.path / file) for file in files]
        alike = work.alike(paths, self.result.schema) if files else None
        return files if alike is None else target.write(self._passed(gate.judge(self.result, alike)), batch)

    def counts(self) -> Counts:
        """What the batch came to; known once `passed` is written."""
        tally = Tally()
        if self._judged is not None:
            assert self._work.gate is not None
            tally = self._work.gate.tally(self._judged[1].get)
        return Counts(self._taken, tally=tally)

    def held(self, clock: str) -> pa.Table | DataFrame:
        """No rows, as of `FewJudged`."""
        return stored.schema(HELD).empty_table()


def places() -> list[Column]:
    """Where in Kafka a row stands."""
    return [F.col(f"{SOURCE}.{name}").alias(name) for name in PLACE]
