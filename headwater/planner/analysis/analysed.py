"""A table as the engine runs it: what analysing its definition has told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.planner.aggregate import Aggregate
from headwater.planner.event_time import Lateness
from headwater.planner.groups import Groups
from headwater.planner.outlines import Kind, Outline
from headwater.planner.partners import Joins
from headwater.planner.reach import Reach
from headwater.planner.stages import Stage
from headwater.quality.gate import Gate


@dataclass(frozen=True)
class Analysed:
    """A table as the engine runs it.

    Attributes:
        name: `<layer>.<name>`.
        columns, stored, keys, state, kind: see `Outline`.
        aggregate: how it is maintained; None where rows are appended.
        fingerprint: changes when the definition or its suite does; see `fingerprint`.
        gate: judges its rows; None where nothing is expected of them.
        lateness: what makes a row too late for it; None where no row is.
        late: the columns of its late table.
        warnings: see `Outline`.
        groups: how a view is kept by what rows add to its groups and take from them; None where it is not.
        stage: what is kept of the inner part of which its groups are; None where they are of a table's rows.
        reach: how a view is kept by the rows that changes touch; None where it is not.
        joins: of a table of several streams, how what new rows of one are joined with is found.
        alone: of joined streams, {one whose rows are given without a partner, too → for how many microseconds
            of event time each waits for one}.
        disordered: whether its rows come in no order of time, as those of a join of streams do.
        anew: why all of a view is computed anew; "" where it is not.
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
    warnings: tuple[str, ...] = ()
    groups: Groups | None = None
    stage: Stage | None = None
    reach: Reach | None = None
    joins: Joins | None = None
    alone: Mapping[str, int] = field(default_factory=dict)
    disordered: bool = False
    anew: str = ""

    @property
    def appended(self) -> bool:
        """Whether its rows never change once they are there."""
        return not self.keys or self.state is not None

    @property
    def ordered(self) -> bool:
        """Whether the order of its rows matters, to it or to what may read it and tell the time."""
        return self.lateness is not None or (self.appended and not self.disordered)

    @property
    def outline(self) -> Outline:
        """What of it can be kept."""
        return Outline(self.kind, self.columns, self.stored, self.keys, self.state, self.warnings)
