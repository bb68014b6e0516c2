"""When a batch makes its definition fail: the records that do it, found by halving.

A definition works row by row, so a batch fails because of single records. The batch is tried in small
parts, a part that fails is halved until the records stand alone, and the rest goes on without them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from py4j.protocol import Py4JNetworkError
from pyspark.sql.types import StructType

from headwater.connectors import decode
from headwater.errors import HeadwaterError
from headwater.errors.causes import describe
from headwater.flows.rows import FEW, FewRows, Work
from headwater.storage import stored
from headwater.storage.places import KEYS

LIMIT = 20  # records; where more fail, it is the definition that is wrong, or the machine
SAMPLE = 8  # records of a part that are tried first; where half of them fail, too many will


def broken(
    work: Work, parts: Iterable[pa.Table], error: Exception, stop: threading.Event, *, limited: bool = True
) -> pa.Table:
    """The records that make the definition fail, and why: columns of `decode.REJECTED`.

    Args:
        work: what is done with the batch.
        parts: its records; see `parts`.
        error: how the batch failed.
        stop: set when the run shall end.
        limited: whether there may be no more than `LIMIT`.

    Raises:
        Exception: `error` itself, where no single record is at fault: an empty batch fails too, none
            fails alone, half of a sample do, or more than `LIMIT` do; and where the run ends.
    """
    search = _Search(work)
    if search.reason(stored.schema(work.columns).empty_table()) is not None:
        raise error
    found: list[dict[str, object]] = []
    for part in parts:
        if limited and search.hopeless(part):
            raise error
        for row, reason in search.failing(part):
            found.append({**row, "reason": f"the definition fails: {reason}"})
            if (limited and len(found) > LIMIT) or stop.is_set():
                raise error
    if not found:
        raise error
    return pa.Table.from_pylist(found, decode.REJECTED)


def parts(files: Sequence[str], columns: StructType) -> Iterator[pa.Table]:
    """The rows of files, a bounded number at a time."""
    for batch in ds.dataset(list(files), schema=stored.schema(columns)).to_batches(batch_size=FEW):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


class _Search:
    def __init__(self, work: Work) -> None:
        self._work = work

    def hopeless(self, rows: pa.Table) -> bool:
        """Whether half of some rows, spread over all, fail alone."""
        if len(rows) <= 2 * LIMIT:
            return False
        some = [rows.slice(at * len(rows) // SAMPLE, 1) for at in range(SAMPLE)]
        return sum(self.reason(row) is not None for row in some) >= SAMPLE // 2

    def failing(self, rows: pa.Table, known: bool = False) -> Iterator[tuple[dict[str, object], str]]:
        """The rows that fail when they are taken alone; `known`: that all of them together fail."""
        reason = None if known and len(rows) > 1 else self.reason(rows)
        if reason is None and not known:
            return
        if len(rows) == 1:
            if reason is not None:
                yield rows.select(KEYS).to_pylist()[0], reason
            return
        half = len(rows) // 2
        first = list(self.failing(rows.slice(0, half)))
        yield from first
        yield from self.failing(rows.slice(half), known=not first)

    def reason(self, rows: pa.Table) -> str | None:
        """Why the definition fails on these rows; None where it does not."""
        try:
            FewRows(self._work, rows).passed()
        except (HeadwaterError, Py4JNetworkError):
            raise
        except Exception as e:
            return describe(e)
        return None
