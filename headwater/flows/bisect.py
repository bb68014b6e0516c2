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
SHARE = 1_000  # or one of so many, where that is more: a rebuild's batch has as many as a thousand of a run's
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
    most: int | None,
    within: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> pa.Table:
    """The records that make the definition fail, and why: columns of `decode.REJECTED`.

    Args:
        work: what is done with the batch.
        parts: its records; see `parts`.
        error: how the batch failed.
        stop: set when the run shall end.
        most: how many there may be; None: however many, and those that are not tried in time count as such.
        within: how many seconds the search may take; None: `WITHIN`.
        tell: told every few seconds how far it is, in words.

    Raises:
        Exception: `error` itself, where no single record is at fault: an empty batch fails too, none
            fails alone; where half of a sample do, more than `most` do, or it takes longer than it may,
            unless they may be however many; or where the run ends.
    """
    data = data_of(error)
    if data is not None and data["code"] in _OF_THE_MACHINE:
        raise error
    search = _Search(work, error, stop, tell, WITHIN if within is None else within)
    if search.without_rows() is not None:
        raise error
    found: list[dict[str, object]] = []
    for part in parts:
        search.done = 0
        try:
            why = search.reason(part)
            if why is not None and not found and most is not None and search.hopeless(part):
                raise error
            for row, reason in search.failing(part, why) if why is not None else ():
                found.append({**row, "reason": f"the definition fails: {reason}"})
                search.found += 1
                if most is not None and len(found) > most:
                    raise error
        except _TookTooLongError:
            if most is not None:
                raise error from None
            rest = part.slice(search.done).select(KEYS).to_pylist()
            found += [{**row, "reason": "not tried: others took too long"} for row in rest]
        search.tried += len(part)
    if not found:
        raise error
    return pa.Table.from_pylist(found, decode.REJECTED)


def most(rows: int) -> int:
    """How many of so many records may make a definition fail that is right."""
    return max(LIMIT, rows // SHARE)


def parts(files: Sequence[str], columns: StructType) -> Iterator[pa.Table]:
    """The rows of files, a bounded number at a time."""
    for batch in stored.dataset(files, stored.schema(columns)).to_batches(batch_size=FEW):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


class _TookTooLongError(Exception):
    """A search has taken as long as it may."""


class _Search:
    """Tries, one after the other; see `broken` for its arguments.

    Attributes:
        tried, found: how many records are done with, and how many of them fail.
        done: how many of the part that is being searched are done with: the first of it.
    """

    def __init__(
        self,
        work: Work,
        error: Exception,
        stop: threading.Event,
        tell: Callable[[str], None],
        within: float,
    ) -> None:
        self._work, self._error, self._stop, self._tell, self._within = work, error, stop, tell, within
        self._began = self._told = time.monotonic()
        self.tried = self.found = self.done = 0

    def without_rows(self) -> str | None:
        """Why the definition fails without a row; None where it does not."""
        return self._tried(stored.schema(self._work.columns).empty_table())

    def hopeless(self, rows: pa.Table) -> bool:
        """Whether half of some rows, drawn from many, fail alone."""
        if len(rows) <= FEW_ENOUGH:
            return False
        some = [rows.slice(at, 1) for at in random.Random(len(rows)).sample(range(len(rows)), SAMPLE)]
        return sum(self.reason(row) is not None for row in some) >= SAMPLE // 2

    def failing(self, rows: pa.Table, why: str) -> Iterator[tuple[dict[str, object], str]]:
        """Of rows that fail together, those that fail when they are taken alone; `why` they do together."""
        if len(rows) == 1:
            self.done += 1
            yield rows.select(KEYS).to_pylist()[0], why
            return
        half = len(rows) // 2
        first, second = rows.slice(0, half), rows.slice(half)
        of_first = self.reason(first)
        if of_first is not None:
            yield from self.failing(first, of_first)
        else:
            self.done += len(first)
        # Where the first half passes it is the second that fails; a row alone is tried, for its own reason.
        of_second = why if of_first is None and len(second) > 1 else self.reason(second)
        if of_second is not None:
            yield from self.failing(second, of_second)
        else:
            self.done += len(second)

    def reason(self, rows: pa.Table) -> str | None:
        """Why the definition fails on these rows; None where it does not.

        Raises:
            _TookTooLongError: the search does.
            Exception: how the batch failed, where the run ends.
        """
        now = time.monotonic()
        if now >= self._told + TELLING:
            self._told = now
            self._tell(
                f"its definition fails, so the records that do it are looked for: {self.found} found, "
                f"{self.tried:,} records done with, after {now - self._began:.0f} s "
                f"(at most {self._within:.0f} s)"
            )
        if self._stop.is_set():
            raise self._error
        if now > self._began + self._within:
            raise _TookTooLongError
        return self._tried(rows)

    def _tried(self, rows: pa.Table) -> str | None:
        try:
            FewRows(self._work, rows).passed()
        except (HeadwaterError, Py4JNetworkError):
            raise
        except Exception as e:
            return describe(e)
        return None
