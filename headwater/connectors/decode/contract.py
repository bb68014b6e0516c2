"""What becomes of a record whose fields are not the declared ones; see
`headwater.project.definitions.json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType

from headwater.connectors.decode import unknown
from headwater.errors import NOWHERE, FlowError, Where
from headwater.project.definitions import Contract

RESCUED = "_rescued"
BREACH = "breaks the contract: "  # how the reason begins for which a flow stops


@dataclass(frozen=True)
class Fields:
    """What a decoder takes of each value.

    Attributes:
        schema: its columns: the declared fields, and `_rescued` where the contract is `evolve`.
        declared: the declared fields alone.
        contract: what becomes of a record whose fields are others.
        where: file and table, for errors.
        timestamp: the column that gets Kafka's timestamp; None: none does.
        tombstones: the columns of the key, where a record without a value deletes it; (): it is malformed.
        enveloped: whether values are Debezium's: tombstones among them, and what else an event says is not
            looked at.
    """

    declared: StructType
    contract: Contract = "evolve"
    where: Where = NOWHERE
    timestamp: str | None = None
    tombstones: tuple[str, ...] = ()
    enveloped: bool = False

    @property
    def schema(self) -> StructType:
        rescued = [StructField(RESCUED, StringType())] if self.contract == "evolve" else []
        return StructType([*self.declared, *rescued])

    def enforce(self, malformed: Sequence[tuple[Any, ...]], *, more: bool = False) -> None:
        """Refuse a batch with a record that breaks a contract which stops the flow.

        Args:
            malformed: where each malformed row stands in Kafka (cluster, topic, partition, offset), and its
                reason.
            more: whether there are others behind these.

        Raises:
            FlowError: there is one; it names the table, the field, the first such record and what to do.
        """
        broken = [row for row in malformed if row[-1].startswith(BREACH)]
        count = f"{len(broken)} or more" if more else len(broken)
        if broken:
            _, topic, partition, offset, reason = min(broken, key=lambda row: tuple(row[:4]))
            raise FlowError(
                f"{self.where}: {reason.removeprefix(BREACH)} (topic {topic}, partition {partition}, offset "
                f"{offset}; {count} such records in the batch) breaks contract='freeze'; nothing of "
                "the batch is in the table",
                code="CONTRACT_BROKEN",
                where=self.where,
                hint="change the fields of hw.json, or write contract='quarantine', then run again",
            )


class MalformedError(Exception):
    """Some row of these is malformed; the message says why, and ends with ` in row N` where it is known."""


@dataclass(frozen=True)
class Part:
    """Well-formed lines, from the line `start` of their batch on, and what was read of them.

    `known` says that no field is in them but the declared ones.
    """

    start: int
    lines: Sequence[bytes]
    table: pa.Table
    known: bool


def judge(taken: Fields) -> Callable[[Part], tuple[pa.Table, dict[int, str]]]:
    """A function from a part to its rows, `_rescued` among their columns where the contract is `evolve`, and
    {line of the batch → how it breaks the contract}; the rows that do are left out."""
    declared = unknown.shape(taken.declared)
    assert declared is not None

    def rescue(part: Part) -> tuple[pa.Table, dict[int, str]]:
        if part.known:
            return part.table.append_column(RESCUED, pa.nulls(len(part.lines), pa.string())), {}
        kept = [unknown.rescued(line, declared) for line in part.lines]
        return part.table.append_column(RESCUED, pa.array(kept, pa.string())), {}

    def refuse(part: Part) -> tuple[pa.Table, dict[int, str]]:
        # A declared field that is not there was read as NULL.
        suspect = _nulls(part.table).to_pylist() if part.known else [True] * len(part.lines)
        broken = {}
        for at in (at for at, whether in enumerate(suspect) if whether):
            reasons = unknown.reasons(unknown.find(part.lines[at], declared))
            if why := "; ".join(reasons):
                broken[part.start + at] = why if taken.contract == "quarantine" else BREACH + why
        if not broken:
            return part.table, {}
        return part.table.filter([part.start + at not in broken for at in range(len(part.lines))]), broken

    return rescue if taken.contract == "evolve" else refuse


def _nulls(table: pa.Table) -> pa.ChunkedArray:
    """Whether a row has a NULL, however deep; where one is in an array, every row counts as having one."""
    found = pa.chunked_array([pa.repeat(False, len(table))])
    for column in table.columns:
        found = pc.or_(found, _null(column))
    return found


def _null(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Scalar:
    found = pc.is_null(column)
    if pa.types.is_struct(column.type):
        for at in range(column.type.num_fields):
            found = pc.or_(found, _null(pc.struct_field(column, [at])))
    elif pa.types.is_list(column.type):
        inner = _null(pc.list_flatten(column))
        found = pc.or_(found, pc.any(inner, min_count=0) if isinstance(inner, pa.ChunkedArray) else inner)
    return found
