"""What a sink has not got yet, in pieces: no more of a table is in memory than some thousands of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.connectors.sinks import CHANGE, DELETE, UPSERT, Pieces
from headwater.storage import feed, log
from headwater.storage.scan import load
from headwater.storage.target import GONE


def whole(files: Sequence[str], columns: pa.Schema) -> Pieces:
    """All rows of a version of a table, each upserted.

    Args:
        files: the version's.
        columns: of the table; what a file lacks is NULL.
    """
    return _of_files(files, columns)


def of_commit(commit: log.Commit, table: Path, columns: pa.Schema) -> Pieces:
    """What a commit changed.

    Raises:
        FlowError: it took rows away, and keeps no record of which.
    """
    return _of_files([file.path for file in feed.files(commit, table)], columns)


def difference(
    old: Sequence[str], new: Sequence[str], columns: pa.Schema, keys: Sequence[str], held: ExitStack
) -> Pieces:
    """What has to change in rows, for them to be others; without keys none is taken away.

    Args:
        old, new: the files of the rows as they are, and as they are to be.
        columns: of both.
        keys: that tell the rows apart.
        held: what is open until the pieces are read.
    """
    connection = held.enter_context(scratch.connection(scratch.MANY))
    for name, files in (("old", old), ("new", new)):
        load(connection, name, columns, files)
    on_same = same("new", "old", map(quoted, keys))
    gone = f"SELECT *, '{DELETE}' AS {CHANGE} FROM old ANTI JOIN new ON {on_same} UNION ALL "
    changed = f"SELECT *, '{UPSERT}' AS {CHANGE} FROM (FROM new EXCEPT ALL FROM old)"
    connection.execute(f"CREATE TEMP TABLE changes AS {gone if keys else ''}{changed}")
    ((count,),) = connection.execute("SELECT count(*) FROM changes").fetchall()
    kinds = columns.append(pa.field(CHANGE, pa.string()))

    def read() -> Iterator[pa.Table]:
        for batch in connection.execute("FROM changes").to_arrow_reader(feed.PIECE):
            yield pa.Table.from_batches([batch]).cast(kinds)

    return Pieces(count, read)


def _of_files(files: Sequence[str], columns: pa.Schema) -> Pieces:
    def read() -> Iterator[pa.Table]:
        for file in files:
            for rows in feed.pieces(file, columns):
                became = pc.if_else(rows[GONE], DELETE, UPSERT)
                yield rows.drop_columns([GONE]).append_column(CHANGE, became)

    return Pieces(sum(map(feed.count, files)), read)
