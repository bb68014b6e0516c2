"""Rows that are merged into, apart by their time: in files of which a batch touches few.

A merge writes anew each file in which it changes a row. So rows of one time stand together, in files that are
small: what comes late, or corrects what came before, has those of its time written anew, and no others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

APART = 8_000  # rows of a file that a merge writes by itself, about: a file more costs it what 2,000 rows do
CLUSTER = 20_000  # rows of a file of a table that is clustered by columns of its own
COPIED = 5_000  # rows that a merge may copy: about 2 us each
SHARE = 4  # times as many as it changes


def column(keys: tuple[str, ...], columns: pa.Schema) -> str | None:
    """The key that is a time, or the first column that is one; None where there is none."""
    names = (*keys, *columns.names)
    return next((name for name in names if pa.types.is_timestamp(columns.field(name).type)), None)


def apart(rows: pa.Table, time: str | None) -> list[pa.Table]:
    """Rows in parts of about `APART`, by their time: rows of one time stand in one.

    Args:
        rows: the rows.
        time: the column that says it; None: there is none, and they stay together.
    """
    if time is None or len(rows) < 2 * APART:
        return [rows]
    rows = rows.sort_by(time)
    values, count = rows[time].cast(pa.int64()).to_numpy(), len(rows) // APART
    first = np.searchsorted(values, [values[len(rows) * part // count] for part in range(count)])
    starts = sorted({0, *first.tolist()})
    return [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]


def parts(rows: pa.Table, holding: pa.ChunkedArray | None) -> list[pa.Table]:
    """Rows in parts of about `CLUSTER`, in their order; those that still hold apart from others."""
    kinds = [rows] if holding is None else [rows.filter(holding), rows.filter(pc.invert(holding))]
    found = []
    for some in kinds:
        size = -(-len(some) // max(1, len(some) // CLUSTER)) or 1
        found += [some[at : at + size] for at in range(0, len(some), size)]
    return found


class Layers:
    """When the rows of one table are to be parted that delta-rs has merged into: it puts them into one file.

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

    def done(self, copied: int, largest: int, rows: int) -> None:
        """Take note of what came of it: the rows of the largest file, of all that were parted."""
        if largest > rows / 2:
            self._in_vain = copied
        else:
            self._parted = copied
