"""Rows that are merged into, apart by their time: the newest in a small file, older ones in ever larger ones.

A merge writes anew each file in which it changes a row, and puts what they held into one. So a single late
row makes the file of the newest windows one with that of the old ones, which every later batch then writes
anew. Where a merge has copied many rows for the few that it changed, they are parted again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NEWEST = 1_000  # rows of the newest file; each older one has GROWTH times as many
GROWTH = 8
CLUSTER = 20_000  # rows of a file of a table that is clustered by columns of its own
COPIED = 5_000  # rows that a merge may copy: about 2 us each
SHARE = 4  # times as many as it changes


def column(keys: tuple[str, ...], columns: pa.Schema) -> str | None:
    """The key that is a time, or the first column that is one; None where there is none."""
    names = (*keys, *columns.names)
    return next((name for name in names if pa.types.is_timestamp(columns.field(name).type)), None)


def starts(times: pa.ChunkedArray, newest: int = NEWEST) -> list[int]:
    """Where each file begins: rows of one time stand in one.

    Args:
        times: of all rows, ascending.
        newest: how many rows the newest file has, about.
    """
    values = times.cast(pa.int64()).to_numpy()
    found, end, size = {0}, len(values), newest
    while end > size:
        end = int(np.searchsorted(values, values[end - size]))
        found.add(end)
        size *= GROWTH
    return sorted(found)


def parts(rows: pa.Table, holding: pa.ChunkedArray | None) -> list[pa.Table]:
    """Rows in parts of about `CLUSTER`, in their order; those that still hold apart from others."""
    kinds = [rows] if holding is None else [rows.filter(holding), rows.filter(pc.invert(holding))]
    found = []
    for some in kinds:
        size = -(-len(some) // max(1, len(some) // CLUSTER)) or 1
        found += [some[at : at + size] for at in range(0, len(some), size)]
    return found


class Layers:
    """When the rows of one table are to be parted.

    Parting costs about what the merge did that copied them, so it is not tried again where it has not helped:
    until twice as many are copied.
    """

    def __init__(self) -> None:
        self._parted = 0  # rows that the last merge copied, if they were parted then
        self._in_vain = 0

    def due(self, copied: int, changed: int) -> bool:
        """Whether to part the rows that a merge has copied, for those that it changed."""
        if self._parted and copied > self._parted / 2:
            self._in_vain = copied
        self._parted = 0
        return copied > max(COPIED, SHARE * changed, 2 * self._in_vain)

    def done(self, copied: int, newest: int, rows: int) -> None:
        """Take note of what came of it: the rows of the newest file, of all that were parted."""
        if newest > rows / 2:
            self._in_vain = copied
        else:
            self._parted = copied
