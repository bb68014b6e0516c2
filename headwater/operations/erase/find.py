"""Which records of a bronze table a condition means: all are decoded again, as the tables below do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.common import scratch
from headwater.connectors import decode
from headwater.connectors.decode.contract import Fields
from headwater.errors import ProjectError
from headwater.project.bronze import BRONZE
from headwater.project.load import Project
from headwater.storage import stored
from headwater.storage.delta import files
from headwater.storage.lake import Lake
from headwater.storage.places import KEYS, PLACE, once, within

AT_ONCE = 50_000  # rows in memory
_COLUMNS = stored.schema(BRONZE)
_PLACES = pa.schema(list(PLACE.items()))


@dataclass(frozen=True)
class Found:
    """Records that a condition means.

    Attributes:
        places: where they stand in Kafka; the columns of `places.PLACE`.
        records: {bronze table → how many of them it has}.
        malformed: how many others nobody can decode, so that a condition on their fields means none of them.
    """

    places: pa.Table
    records: dict[str, int]
    malformed: int


def find(project: Project, lake: Lake, table: str, where: str) -> Found:
    """The records of which a table is made that a condition means, in every bronze table that has them.

    Args:
        project: the definitions.
        lake: where the tables lie.
        table: a table that decodes records, or the bronze table of the records itself.
        where: a condition in DuckDB's SQL on the fields that are decoded, and on the columns of the bronze
            table.

    Raises:
        ProjectError: the table decodes no records, or the condition is not one on its columns.
    """
    chosen, malformed = [_PLACES.empty_table()], 0
    for raw, decoders in _decoders(project, table).items():
        condition = _Condition(where, decoders)
        for rows in _rows(lake, raw):
            which, undecoded = condition(rows)
            chosen.append(rows.select(KEYS).filter(which).cast(_PLACES))
            malformed += undecoded
    places = once(pa.concat_tables(chosen))
    return Found(places, records(project, lake, places), malformed)


class _Condition:
    """A condition on records, as each decoder reads them.

    Raises:
        ProjectError: it is no condition, or none of them gives the columns that it names.
    """

    def __init__(self, where: str, decoders: Sequence[Fields]) -> None:
        self._where, wrong = where, list[str]()
        self._decoders: list[Fields | None] = []
        every: Sequence[Fields | None] = decoders or [None]
        for taken in every:
            try:
                self._true(self._read(_COLUMNS.empty_table(), taken)[0])
                self._decoders.append(taken)
            except duckdb.Error as e:
                wrong.append(" ".join(str(e).split("\n\nLINE ")[0].split()))
        if not self._decoders:
            raise ProjectError(f"--where {where}: {wrong[0]}", code="CONDITION_INVALID")

    def __call__(self, rows: pa.Table) -> tuple[pa.Array, int]:
        """Of which rows of a bronze table it is true by any decoder; how many others none can decode."""
        true, unknown = [False] * len(rows), [True] * len(rows)
        for taken in self._decoders:
            read, malformed = self._read(rows, taken)
            try:
                found = self._true(read)
            except duckdb.Error as e:
                raise ProjectError(
                    f"--where {self._where}: {' '.join(str(e).split())}", code="CONDITION_INVALID"
                ) from None
            for at in found:
                true[at] = True
            unknown = [a and b for a, b in zip(unknown, malformed, strict=True)]
        return pa.array(true, pa.bool_()), sum(a and not b for a, b in zip(unknown, true, strict=True))

    def _read(self, rows: pa.Table, taken: Fields | None) -> tuple[pa.Table, list[bool]]:
        """The columns that a condition may name, and which rows can't be decoded."""
        if taken is None:
            return rows, [False] * len(rows)
        read, reasons = decode.decoded_here(rows, taken)
        read = read.drop_columns([decode.SOURCE])
        named = {name.lower() for name in read.column_names}
        for name in (name for name in _COLUMNS.names if name not in named):
            read = read.append_column(name, rows[name])
        return read, reasons.is_valid().to_pylist()

    def _true(self, rows: pa.Table) -> list[int]:
        numbered = rows.append_column("_at", pa.array(range(len(rows)), pa.int64()))
        with scratch.connection(scratch.MANY) as connection:
            statements = connection.extract_statements(f"SELECT _at FROM records WHERE (\n{self._where}\n)")
            if len(statements) != 1:
                raise duckdb.ParserException("more than one statement; write one condition")
            connection.register("records", numbered)
            return [at for (at,) in connection.execute(statements[0]).fetchall()]


def _decoders(project: Project, table: str) -> dict[str, list[Fields]]:
    """{bronze table → how its records are decoded}: of one, by all that read it; of another, its own.

    Raises:
        ProjectError: it decodes none.
    """
    project.definition(table)
    found: dict[str, list[Fields]] = {table: []} if table in project.raw else {}
    tables = project.tables.values() if table in project.raw else [project.tables[table]]
    for flow in (flow for each in tables for flow in (each.flows or (each,))):
        for raw in (source for source in flow.sources if source in project.raw and flow.decode is not None):
            if table in (raw, flow.name, flow.into):
                assert flow.decode is not None
                found.setdefault(raw, []).append(decode.fields(flow.decode, flow.where))
    if not found:
        above = [project.tables[name] for name in project.above([table]) if name in project.tables]
        known = [each.name for each in above if each.decode or any(flow.decode for flow in each.flows)]
        raise ProjectError(
            f"{table} decodes no records",
            code="NOTHING_DECODED",
            table=table,
            hint=f"name one that does: {', '.join(known) or 'none'}",
        )
    return found


def records(project: Project, lake: Lake, places: pa.Table) -> dict[str, int]:
    """{bronze table → how many of the records it has}: two may read one topic."""
    found: dict[str, int] = {}
    for name in project.raw if len(places) else ():
        count = sum(len(within(rows, places)) for rows in _rows(lake, name, KEYS))
        if count:
            found[name] = count
    return found


def _rows(lake: Lake, raw: str, columns: Sequence[str] = _COLUMNS.names) -> Iterator[pa.Table]:
    """The rows of a bronze table, some at a time."""
    place = lake.places().get(raw)
    kept = pa.schema([_COLUMNS.field(name) for name in columns])
    for file in files(place.path) if place else ():
        with stored.opened(file) as opened:
            for batch in opened.iter_batches(AT_ONCE, columns=list(columns)):
                yield stored.fitted(pa.Table.from_batches([batch]), kept)


def counted(records: Mapping[str, int]) -> str:
    """How many records which tables have, in words."""
    return ", ".join(f"{count:,} of {name}" for name, count in records.items())
