"""A table as the engine runs it: what analysing its definition has told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.planner.aggregate import Aggregate
from headwater.planner.event_time import Lateness
from headwater.quality.gate import Gate

Kind = Literal["rows", "changed rows", "aggregate", "final windows", "process", "view"]


@dataclass(frozen=True)
class Analysed:
    """A table as the engine runs it.

    Attributes:
        name: `<layer>.<name>`.
        kind: how it is kept; of one of `rows`, each is appended and never changes, and one of `changed rows`
            has a row for a row of a table whose rows change in place.
        columns: what readers of the table see; all may be NULL, as in rows of before they were added.
        stored: what the Delta table holds: the columns, and partial results behind them.
        keys: the columns that identify a row; none for a table of appended rows.
        aggregate: how it is maintained; None where rows are appended.
        fingerprint: changes when the definition or its suite does; see `fingerprint`.
        gate: judges its rows; None where nothing is expected of them.
        lateness: what makes a row too late for it; None where no row is.
        late: the columns of its late table.
        state: the columns of the table of its open windows; None where its own rows are those.
    """

    name: str
    columns: StructType
    stored: pa.Schema
    keys: tuple[str, ...]
    aggregate: Aggregate | None
    fingerprint: str
    gate: Gate | None = None
    lateness: Lateness | None = None
    late: pa.Schema | None = None
    state: pa.Schema | None = None
    kind: Kind = "rows"

    @property
    def appended(self) -> bool:
        """Whether its rows never change once they are there."""
        return not self.keys or self.state is not None
