"""Many small files into few: what each batch of a stream leaves, put together in the order in which it came.

Delta's OPTIMIZE packs files by size; here the order of rows has to stay, as it says which of a partition's
rows came first. A file is written anew once those behind it have as many bytes: so a row is as often as its
file can double, not each time that new ones come (size-tiered compaction, as of log-structured merge trees:
https://doi.org/10.1007/s002360050048).

Of a table whose rows change in place the order means nothing: there rows are put together by their keys, and
only files that merges have left alone for a while, as a merge writes those that it touches anew. The commit
says `dataChange = false`, so those that read on from a version pass over it:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

import pyarrow as pa

from headwater.common import times
from headwater.runtime import failpoints
from headwater.storage import layers, stored
from headwater.storage.log import DataFile
from headwater.storage.target import Target

FILE = 128 * 1024 * 1024  # bytes that a file should have
CHANGING = 16 * 1024 * 1024  # where rows change in place: a row that comes late has its file written anew
FEWEST = 10  # small files that are worth it
SETTLED = 600.0  # seconds since a merge wrote a file
_GROUP = 32 * 1024 * 1024  # bytes of rows in memory, and of one row group


def compact(
    target: Target,
    keys: Sequence[str] | None,
    *,
    size: int | None = None,
    settled: float = SETTLED,
    within: timedelta | None = None,
) -> int:
    """Put small files of a table together; how many are gone.

    Args:
        target: the table.
        keys: by which its rows are sorted, where they change in place; None where they are only appended.
        size: bytes that a file should have; None: `FILE` or `CHANGING`.
        settled: seconds since the last merge into a file, where rows change in place.
        within: the time of which rows may stand in one file, where they shall go by their age.

    Raises:
        DamageError: a file is not what was written.
        CommitError: something else writes the table.
    """
    files = target.data_files()
    if keys is not None:
        files = tuple(file for file in files if file.order / 1000 <= times.now().timestamp() - settled)
    size = size or (FILE if keys is None else CHANGING)
    part = within.total_seconds() * 1000 if within else float("inf")
    if by := target.clustered:
        over = target.without_nulls(target.over) if target.over else set[str]()
        holding = [file for file in files if file.path not in over]
        fewer = _gathered(target, holding, [*by, *(key for key in keys or () if key not in by)])
        ended = [file for file in files if file.path in over]  # they stand in the order in which they ended
        return fewer + sum(_together(target, run, None) for run in list(_runs(ended, size, part)))
    return sum(_together(target, run, keys) for run in list(_runs(files, size, part)))


def _gathered(target: Target, files: Sequence[DataFile], by: Sequence[str]) -> int:
    """Put rows of a table that is clustered in the order of columns, where many files hold what few could."""
    fewer = 0
    for crowd in list(_crowds(files, target.ends(by[0]))):
        order = max(file.order for file in crowd)
        written = target.put_in_order([file.path for file in crowd], by, order)
        fewer += len(crowd) - len(written) if written else 0
    return fewer


def _crowds(files: Sequence[DataFile], ends: Mapping[str, tuple[Any, Any]]) -> Iterator[list[DataFile]]:
    """Files that lie across each other, small ones that lie side by side, and each that is too large.

    Args:
        files: of the table.
        ends: {path → the least and the greatest value of the column by which it is clustered}.
    """
    crowd: list[DataFile] = []
    known = [file for file in files if file.path in ends]
    for file in sorted(known, key=lambda file: ends[file.path]):
        if file.rows >= 2 * layers.CLUSTER:
            yield [file]
            continue
        across = [each for each in crowd if ends[each.path][1] > ends[file.path][0]]
        small = [each for each in crowd if each not in across and each.rows < layers.CLUSTER / 2]
        crowd = [*across, *small, file]
        if len(crowd) >= FEWEST:
            yield crowd
            crowd = []


def _runs(files: Sequence[DataFile], size: int, part: float) -> Iterator[list[DataFile]]:
    """Neighbours that are worth putting together; none of two parts of time, each of so many milliseconds."""
    run: list[DataFile] = []
    for file in files:
        is_full = file.size >= size / 2 or sum(each.size for each in run) + file.size > size
        if run and (is_full or file.order // part != run[-1].order // part):
            yield from _worth(run)
            run = []
        if file.size < size / 2:
            run.append(file)
    yield from _worth(run)


def _worth(run: list[DataFile]) -> Iterator[list[DataFile]]:
    """The files of a run from the first on behind which as many bytes stand, if they are many."""
    behind = sum(file.size for file in run)
    for at, file in enumerate(run):
        behind -= file.size
        if file.size <= behind:
            if len(run) - at >= FEWEST:
                yield run[at:]
            return


def _together(target: Target, run: list[DataFile], keys: Sequence[str] | None) -> int:
    """Make one file of several; how many that leaves fewer, or none where one of them has gone meanwhile."""
    target.check(file.path for file in run)
    columns = target.columns
    written = target.put(_sorted(run, columns, keys) if keys else _groups(run, columns), "together")
    failpoints.reach("compacted", target.place.name)
    if target.rewrite([file.path for file in run], written, run[-1].order):
        return len(run) - 1
    target.forget(written)
    return 0


def _groups(run: list[DataFile], columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files, in their order, as many at once as a row group shall have."""
    held, size = list[pa.Table](), 0
    for rows in chain.from_iterable(stored.pieces(file.path, columns) for file in run):
        held.append(rows)
        size += rows.nbytes
        if size >= _GROUP:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _sorted(run: list[DataFile], columns: pa.Schema, keys: Sequence[str]) -> Iterator[pa.Table]:
    rows = pa.concat_tables([stored.read(file.path, columns) for file in run])
    yield rows.sort_by([(key, "ascending") for key in keys])
