"""The calls of a process: the rows of each key, and its timers, one at a time, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from headwater.common import arrow, times
from headwater.connectors.decode import SOURCE
from headwater.errors import FlowError, Where
from headwater.errors.causes import describe
from headwater.project.definitions import Table
from headwater.project.process import (
    DUE,
    STATE,
    STREAM,
    TIMER,
    TOUCHED,
    Keyed,
    Row,
    Stream,
    advance,
    expires,
    unknown_columns,
)
from headwater.project.watermarks import microseconds

_AT_ONCE = 1_000  # rows that are Python's at a time: of more, its garbage collector looks through all of them
_MADE = 5_000  # rows that it gives, likewise


class Calls:
    """What a process makes of the keys for which something has come.

    Args:
        table: its definition.
        streams: {name of a stream → its columns}.
        made: the columns of the rows that it gives.
        kept: the columns of what is kept of a key.
    """

    def __init__(
        self, table: Table, streams: Mapping[str, Sequence[str]], made: pa.Schema, kept: pa.Schema
    ) -> None:
        assert table.process is not None
        self._process, self._where, self._table = table.process, table.where, table.name
        ttl, of = self._process.ttl, self._process.streams
        self._ttl = timedelta(microseconds=microseconds(ttl, table)) if ttl else None
        self._streams = {stream.name: stream for stream in of}
        self._keys = {stream.name: _key_of(stream) for stream in of}
        self._columns, self._made, self._kept = streams, made, kept

    def __call__(
        self, held: Iterable[Row], due: Iterable[pa.RecordBatch], upto: datetime
    ) -> tuple[pa.Table, pa.Table]:
        """Call it for all whose time has come: the rows that it gives, and what it then keeps of each key.

        Args:
            held: what was kept of the keys.
            due: the rows that are due, those of a key together, in order.
            upto: the time that has come (UTC).

        Raises:
            FlowError: it fails, or gives or keeps what does not fit.
        """
        keys = self._process.keys
        known: dict[tuple[Any, ...], Keyed] = {}
        for row in held:
            key = {name: row[name] for name in keys}
            known[tuple(key.values())] = Keyed(key, row[TOUCHED] or times.EPOCH, row[STATE], row[TIMER])
        made: list[pa.Table] = [self._made.empty_table()]
        given: list[Row] = []

        def take(keyed: Keyed, rows: Iterable[tuple[Stream, Row]]) -> None:
            given.extend(self._called(keyed, rows, upto))
            if len(given) >= _MADE:
                made.append(fitted(given, self._made, self._where, "gives"))
                given.clear()

        rested = dict(known)
        for values, rows in groupby(self._rows(due), self._key):
            rested.pop(values, None)
            if values not in known:
                known[values] = Keyed(dict(zip(keys, values, strict=True)))
            take(known[values], rows)
        for keyed in rested.values():
            take(keyed, ())
        made.append(fitted(given, self._made, self._where, "gives"))
        kept = fitted(map(self._left, known.values()), self._kept, self._where, "keeps")
        return pa.concat_tables(made), kept

    def _rows(self, due: Iterable[pa.RecordBatch]) -> Iterator[tuple[Stream, Row]]:
        """Each row with its stream: the columns that it has there.

        Raises:
            FlowError: it has a time that Python has not.
        """
        only = None if self._process.is_named else self._streams[""]
        for batch in due:
            if (found := arrow.beyond(batch)) is not None:
                raise FlowError(
                    f"{self._where} is given a row whose {found}",
                    code="PROCESS_FAILED",
                    where=self._where,
                    hint="let a table above leave such a row out, or say NULL there, then run: "
                    f"headwater rebuild {self._table}",
                )
            for at in range(0, len(batch), _AT_ONCE):
                for row in arrow.rows(batch.slice(at, _AT_ONCE)):
                    if only is not None:
                        yield only, row
                    else:
                        stream = self._streams[row[STREAM]]
                        yield stream, {name: row[name] for name in self._columns[stream.name]}

    def _key(self, row: tuple[Stream, Row]) -> tuple[Any, ...]:
        """The key of a row."""
        stream, values = row
        return self._keys[stream.name](values)

    def _called(self, keyed: Keyed, rows: Iterable[tuple[Stream, Row]], upto: datetime) -> Iterator[Row]:
        """What the process gives for one key.

        Raises:
            FlowError: it fails.
        """
        at: tuple[Stream, Row] | None = None

        def timed() -> Iterator[tuple[datetime, str, Row]]:
            nonlocal at
            for at in rows:
                stream, row = at
                yield row[stream.event_time or ""], stream.name, row
            at = None

        try:
            yield from advance(self._process, keyed, timed(), upto, self._ttl)
        except Exception as e:
            what = _told(*at) if at else f"timer of {dict(keyed.key)} at {keyed.now.isoformat()}"
            raise FlowError(
                f"{self._where} failed on the {what}: {describe(e)}",
                code="PROCESS_FAILED",
                where=self._where,
                hint="mend it and run again",
            ) from e

    def _left(self, keyed: Keyed) -> Row:
        """What is kept of a key."""
        due = min(filter(None, (keyed.timer, expires(keyed, self._ttl))), default=None)
        touched = keyed.now if keyed.state is not None or keyed.timer is not None else None
        return {**keyed.key, STATE: keyed.state, TIMER: keyed.timer, TOUCHED: touched, DUE: due}


def fitted(rows: Iterable[Row], columns: pa.Schema, where: Where, what: str) -> pa.Table:
    """Rows of a process as columns.

    Args:
        rows: what it gives or keeps.
        columns: those that it may have.
        where: the process.
        what: what it does with them, `gives` or `keeps`.

    Raises:
        FlowError: they do not fit.
    """
    found = list(rows)
    unknown_columns(found, columns.names, where)
    may_be_cut = [field for field in columns if _may_be_cut(field, found)]
    try:
        if may_be_cut:
            found = [
                {**row, **{each.name: arrow.exact(row.get(each.name), each.type) for each in may_be_cut}}
                for row in found
            ]
        return pa.Table.from_pylist(found, columns)
    except (pa.ArrowTypeError, OverflowError, ValueError) as e:
        raise FlowError(
            f"{where} {what} a row that does not fit its columns: {describe(e)}",
            code="PROCESS_ROW_INVALID",
            where=where,
        ) from e


def _may_be_cut(column: pa.Field, rows: Sequence[Row]) -> bool:
    """Whether pyarrow would cut a value of a column to one of its type."""
    of, kind = pa.types, column.type
    if of.is_struct(kind) or of.is_list(kind):
        return True
    if not of.is_integer(kind) and not of.is_date(kind):
        return False
    plain = int if of.is_integer(kind) else date
    return not {type(row.get(column.name)) for row in rows} <= {plain, NoneType}


def _told(stream: Stream, row: Row) -> str:
    """Which row it is, for people."""
    return f"row {row[SOURCE]}" + (f" of {stream.name}" if stream.name else "")


def _key_of(stream: Stream) -> Callable[[Row], tuple[Any, ...]]:
    """What gives the key of a stream's row."""
    if len(stream.keys) > 1:
        return itemgetter(*stream.keys)
    (key,) = stream.keys
    return lambda row: (row[key],)
