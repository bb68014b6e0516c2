"""How the rows of a generation that is built differ from those of the live one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from headwater import inspect, memory
from headwater.aggregate import PARTIAL
from headwater.lake import Lake, Place, files
from headwater.memory import quoted
from headwater.project import Project

FLOAT_DIGITS = 9  # sums of DOUBLE depend on the order of addition in their last digits


@dataclass(frozen=True)
class Difference:
    """How two generations of a table differ.

    Attributes:
        table: its name.
        before, after: how many rows each has.
        gone: how many rows only the live one has; `new`: only the other. A row that changed counts in both.
        columns: what only one of them has; rows are compared by those that both have.
    """

    table: str
    before: int
    after: int
    gone: int
    new: int
    columns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.new or self.columns)


def compare(project: Project, live: Lake, built: Lake, names: list[str]) -> list[Difference]:
    """The tables, each compared; one that is not live yet counts as empty."""
    return [_compare(name, live.places().get(name), built.places().get(name)) for name in names]


def _compare(name: str, live: Place | None, built: Place | None) -> Difference:
    old, new = (_files(place) for place in (live, built))
    ours, theirs = (_columns(place) for place in (live, built))
    common = [column for column in ours if column in theirs]
    apart = tuple(sorted({*ours, *theirs} - set(common))) if live and built else ()
    if not common:
        return Difference(name, old[1], new[1], old[1], new[1], apart)
    kinds = {**ours, **theirs}
    values = ", ".join(_value(column, kinds[column]) for column in common)
    with memory.connection() as connection:

        def only(one: list[str], other: list[str]) -> int:
            if not one:
                return 0
            rows = "SELECT {} FROM read_parquet({}, hive_partitioning = false, union_by_name = true)"
            text = rows.format(values, "$one")
            if other:
                text += f" EXCEPT ALL {rows.format(values, '$other')}"
            parameters = {"one": one, **({"other": other} if other else {})}
            found = connection.execute(f"SELECT count(*) FROM ({text})", parameters).fetchone()
            return int(found[0]) if found else 0

        return Difference(name, old[1], new[1], only(old[0], new[0]), only(new[0], old[0]), apart)


def _value(column: str, kind: pa.DataType) -> str:
    name = quoted(column)
    if not pa.types.is_floating(kind):
        return name
    digits = f"{FLOAT_DIGITS} - 1 - CAST(floor(log10(abs({name}))) AS INT)"
    return f"CASE WHEN isfinite({name}) AND {name} <> 0 THEN round({name}, {digits}) ELSE {name} END"


def _files(place: Place | None) -> tuple[list[str], int]:
    if place is None:
        return [], 0
    return files(place.path), inspect.state(place).rows or 0


def _columns(place: Place | None) -> dict[str, pa.DataType]:
    if place is None:
        return {}
    schema = pa.schema(DeltaTable(place.path).schema().to_arrow())
    return {field.name: field.type for field in schema if field.name != PARTIAL}
