"""Taking records out of a bronze table: its files written anew without them, and its past forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from headwater.common import times
from headwater.operations.maintain.clean import clean, forget_uncommitted, remove
from headwater.runtime import failpoints
from headwater.storage import checksums, log, stored
from headwater.storage.intent import intents_of
from headwater.storage.lake import Lake
from headwater.storage.places import KEYS, within, without
from headwater.storage.target import Target

_AT_ONCE = 100_000  # rows in memory


def take_out(target: Target, places: pa.Table) -> int:
    """Write those files anew that have records at these places; how many files that were.

    The other records stay where they are, in their order, so flows that go on from here miss none.

    Raises:
        CommitError: something else writes the table.
    """
    written = 0
    for file in target.data_files():
        if not len(within(stored.whole(file.path, KEYS), places)):
            continue
        target.check([file.path])
        left = target.put(_left(file.path, target.columns, places), "erased")
        failpoints.reach("written", "erase")
        target.rewrite([file.path], left, file.order, operation="DELETE")
        written += 1
    return written


def forget_past(lake: Lake, target: Target) -> None:
    """Remove what only older versions have; readers begin with a snapshot of the newest."""
    table, head = target.place.path, target.version
    checksums.checkpoint(table)
    clean(table, upto=head, before=times.now() + timedelta(seconds=1))
    for path in log.read(table, head).left:
        remove(Path(path))
    forget_uncommitted(table, intents_of(lake), older=timedelta(0))


def _left(file: str, columns: pa.Schema, places: pa.Table) -> Iterator[pa.Table]:
    with stored.opened(file) as opened:
        for batch in opened.iter_batches(_AT_ONCE):
            yield without(stored.fitted(pa.Table.from_batches([batch]), columns), places)
