"""When a batch makes its definition fail: the records that do it, found by halving.

A definition works row by row, so a batch fails because of single records. The batch is tried in small
parts, a part that fails is halved until the records stand alone, and the rest goes on without them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.sql.types import StructType

from headwater.connectors import decode
from headwater.errors import HeadwaterError
from headwater.errors.causes import data_of, describe
from headwater.flows.rows import FEW, FewRows
from headwater.flows.work import Work
from headwater.storage import stored
from headwater.storage.places import KEYS

if TYPE_CHECKING:
    from headwater.errors.codes import Code

LIMIT = 20  # records; where more fail, it is the definition that is wrong, or the machine
FEW_ENOUGH = 20 * LIMIT  # records of which those that fail are soon found, or soon too many
SAMPLE = 8  # of more than these, so many are tried first; where half of them fail, too many will
WITHIN = 300.0  # seconds that a search may take
TELLING = 5.0  # seconds between two words on how far it is
_OF_THE_MACHINE: set[Code] = {"DISK_FULL", "FILE_SYSTEM_READ_ONLY", "OUT_OF_MEMORY"}


def broken(
    work: Work,
    parts: Iterable[pa.Table],
    error: Exception,
    stop: threading.Event,
    *,
    limited: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> pa.Table:
    """The records that make the definition fail, and why: columns of `decode.REJECTED`.

    Args:
        work: what is done with the batch.
        parts: its records; see `parts`.
        error: how the batch failed.
        stop: set when the run shall end.
        limited: whether there may be no more than `LIMIT`.
        tell: told every few seconds how far it is, in words.

    Raises:
        Exception: `error` itself, where no single record is at fault: an empty batch fails too, none
            fails alone, half of a sample do, or more than `LIMIT` do; where it takes longer than
            `WITHIN`; or where the run ends.
    """
    data = data_of(error)
    if data is not None and data["code"] in _OF_THE_MACHINE:
        raise error
    search = _Search(work, error, stop, tell)
    if search.reason(stored.schema(work.columns).empty_table()) is not None:
        raise error
    found: list[dict[str, object]] = []
    for part in parts:
        why = search.reason(part)
        if why is not None and not found and limited and search.hopeless(part):
            raise error
        for row, reason in search.failing(part, why) if why is not None else ():
            found.append({**row, "reason": f"the definition fails: {reason}"})
            search.found += 1
            if limited and len(found) > LIMIT:
                raise error
        search.tried += len(part)
    if not found:
        raise error
    return pa.Table.from_pylist(found, decode.REJECTED)


def parts(files: Sequence[str], columns: StructType) -> Iterator[pa.Table]:
    """The rows of files, a bounded number at a time."""
    for batch in stored.dataset(files, stored.schema(columns)).to_batches(batch_size=FEW):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


class _Search:
    """Tries, one after the other; see `broken` for its arguments.

    Attributes:
        tried, found: how many records are done with, and how many of them fail.
    """

    def __init__(
        self, work: Work, error: Exception, stop: threading.Event, tell: Callable[[str], None]
    ) -> None:
        self._work, self._error, self._stop, self._tell = work, error, stop, tell
        self._began = self._told = time.monotonic()
        self.tried = self.found = 0

    def hopeless(self, rows: pa.Table) -> bool:
        """Whether half of some rows, drawn from many, fail alone."""
        if len(rows) <= FEW_ENOUGH:
            return False
        some = [rows.slice(at, 1) for at in random.Random(len(rows)).sample(range(len(rows)), SAMPLE)]
        return sum(self.reason(row) is not None for row in some) >= SAMPLE // 2

    def failing(self, rows: pa.Table, why: str) -> Iterator[tuple[dict[str, object], str]]:
        """Of rows that fail together, those that fail when they are taken alone; `why` they do together."""
        if len(rows) == 1:
            yield rows.select(KEYS).to_pylist()[0], why
            return
        half = len(rows) // 2
        first, second = rows.slice(0, half), rows.slice(half)
        of_first = self.reason(first)
        if of_first is not None:
            yield from self.failing(first, of_first)
        # Where the first half passes it is the second that fails; a row alone is tried, for its own reason.
        of_second = why if of_first is None and len(second) > 1 else self.reason(second)
        if of_second is not None:
            yield from self.failing(second, of_second)

    def reason(self, rows: pa.Table) -> str | None:
        """Why the definition fails on these rows; None where it does not.

        Raises:
            Exception: how the batch failed, where the search takes too long, or the run ends.
        """
        now = time.monotonic()
        if now >= self._told + TELLING:
            self._told = now
            self._tell(
                f"its definition fails, so the records that do it are looked for: {self.found} found, "
                f"{self.tried:,} records done with, after {now - self._began:.0f} s (at most {WITHIN:.0f} s)"
            )
        if self._stop.is_set() or now > self._began + WITHIN:
            raise self._error
        try:
            FewRows(self._work, rows).passed()
        except (HeadwaterError, Py4JNetworkError):
            raise
        except Exception as e:
            return describe(e)
        return None
