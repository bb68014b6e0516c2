"""Rows of a table's files for DuckDB: of small files as this process has them, of others as it reads them.

Of what is in memory only rows that may be wanted are given: to look for a few thousand values among so many
rows takes Arrow a twentieth of the time in which DuckDB takes the rows over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import scratch
from headwater.common.scratch import quoted
from headwater.storage import recent, stored
from headwater.storage.merging import Numbers

FILE, ROW = "__file", "file_row_number"  # the columns that say where a row stands
_NUMBERS = count()  # of scans: a connection may have several

Wanted = Mapping[str, pa.Array | pa.ChunkedArray]  # {column → values that rows are to have}


@dataclass(frozen=True)
class Scan:
    """Rows of files.

    Attributes:
        sql: what gives them, to stand behind FROM.
        parameters: what it is executed with.
        rows: the same, where they are in memory, and those alone that are wanted; else None.
    """

    sql: str
    parameters: Mapping[str, list[str]] = field(default_factory=dict)
    rows: pa.Table | None = None


def scan(
    connection: duckdb.DuckDBPyConnection,
    columns: pa.Schema,
    files: Collection[str],
    wanted: Sequence[Wanted] = (),
    *,
    place: bool = False,
) -> Scan:
    """Rows of Parquet files, some of which were written before some of the columns were added: NULL then.

    Args:
        connection: where the SQL will be executed.
        columns: those to read.
        files: the files.
        wanted: rows that have none of these may be left out, as who asks looks for them among all; none: any
            row may matter.
        place: whether to say of each row, in `FILE` and `ROW`, where it stands.

    Raises:
        DamageError: a file is not what was written.
    """
    kept, others = _kept(files)
    rows = [stored.fitted(each, columns) for each in kept.values()]
    known = pa.concat_tables([columns.empty_table(), *rows])
    matter = alike(known, wanted) if wanted and len(known) else None
    found = known if matter is None else known.filter(matter)
    if place:
        numbers = (
            np.arange(len(known)) if matter is None else np.flatnonzero(np.asarray(matter.fill_null(False)))
        )
        found = _placed(found, numbers, [*kept], [len(each) for each in rows])
    name = f"scan_{next(_NUMBERS)}"
    scratch.give(connection, name, found)
    if not others:
        return Scan(f"(FROM {name})", rows=found if is_exact(columns, wanted) else None)
    options = f", filename = '{FILE}', {ROW} = true" if place else ""
    read = f"read_parquet(${name}_files, hive_partitioning = false, union_by_name = true{options})"
    return Scan(f"(FROM {name} UNION ALL BY NAME FROM {read})", {f"{name}_files": others})


def load(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: pa.Schema,
    files: Collection[str],
    query: str = "FROM there",
    wanted: Sequence[Wanted] = (),
    *,
    place: bool = False,
    exact: bool = False,
) -> None:
    """Make a temporary table of rows of Parquet files; see `scan`.

    Args:
        connection: whose table it is.
        table: its name.
        columns: those to read.
        files: the files.
        query: SQL of what is asked of `there`, the rows. A SEMI JOIN with few others reads a fifth of what
            it takes to load them all.
        wanted: see `scan`.
        place: whether to say of each row, in `FILE`, where it stands.
        exact: whether the query asks for just the rows that are wanted.
    """
    found = scan(connection, columns, files, wanted, place=place)
    names = [*columns.names, *[FILE] * place]
    there = f"SELECT {', '.join(map(quoted, names))} FROM {found.sql}"
    if exact and wanted and found.rows is not None:
        connection.execute(f"CREATE TEMP VIEW {table} AS {there}")
        return
    parameters = dict(found.parameters)
    connection.execute(f"CREATE TEMP TABLE {table} AS WITH there AS ({there}) {query}", parameters)


def _kept(files: Collection[str]) -> tuple[dict[str, pa.Table], list[str]]:
    """{file → its rows}, of those that are in memory now, and the others."""
    found = {file: recent.KEPT.find(file) for file in files}
    cold = [file for file, rows in found.items() if rows is None and recent.is_small(file)]
    if len(cold) <= recent.ONE_BY_ONE:
        found |= {file: stored.whole(file) for file in cold}
    kept = {file: rows for file, rows in found.items() if rows is not None}
    return kept, [file for file in files if file not in kept]


def _placed(rows: pa.Table, numbers: Numbers, files: Sequence[str], counts: Sequence[int]) -> pa.Table:
    """Rows with the file of each, and its number there.

    Args:
        rows: some of the rows of files.
        numbers: of each its number among all.
        files: the files.
        counts: how many rows each of them has.
    """
    starts = np.cumsum([0, *counts])
    of = np.searchsorted(starts, numbers, side="right") - 1
    names = pa.array(files, pa.string()).take(pa.array(of, pa.int64()))
    return rows.append_column(FILE, names).append_column(ROW, pa.array(numbers - starts[of], pa.int64()))


def alike(rows: pa.Table, wanted: Sequence[Wanted]) -> pa.ChunkedArray:
    """Of rows, which may have the values of one of those that are wanted: by each column apart."""
    found = None
    for each in wanted:
        among = _all(rows, each)
        found = among if found is None else pc.or_(found, among)
    return found


def is_exact(columns: pa.Schema, wanted: Sequence[Wanted]) -> bool:
    """Whether rows that may have the values of one of those that are wanted have them: of one column each."""
    return all(
        len(each) == 1
        and column in columns.names
        and stored.is_told_apart(columns.field(column).type)
        and stored.is_told_apart(values.type)
        for each in wanted
        for column, values in each.items()
    ) and all(wanted)


def _all(rows: pa.Table, wanted: Wanted) -> pa.ChunkedArray | pa.Array:
    found: pa.ChunkedArray | pa.Array = pa.repeat(True, len(rows))
    for column in wanted.keys() & {*rows.column_names}:
        kind, values = rows.schema.field(column).type, wanted[column]
        if stored.is_told_apart(kind) and stored.is_told_apart(values.type):
            values = _one(values)
            values = values.filter(stored.fits(values, kind)).cast(kind)
            found = pc.and_(found, pc.is_in(rows[column], value_set=values))
    return found


def _one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
