"""How far event time has come in each partition of Kafka, and which windows are closed: what a watermark is.

A partition has *reached* the greatest event time among the rows that came from it. Windows close when every
partition that is not idle has reached their end and the delay; and a row is late when its own partition had
reached that before it. The first makes sure of the second: no row that is on time finds its window closed,
wherever batches were cut.

All times here are microseconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headwater.common import scratch
from headwater.connectors.decode import SOURCE
from headwater.planner.aggregate import LATE, WINDOW
from headwater.runtime.catalyst import named
from headwater.storage.scan import scan

NEVER = -(2**62)
_BETWEEN = 10_000_000  # two looks of a run: it looks every second, and a batch takes a few
WATERMARK, LATENESS = "_watermark", "_lateness"  # of a late row
_REACHED = "reached"  # a field of `_source`, while rows are told apart
_PARTITION = ("cluster", "topic", "partition")


@dataclass(frozen=True)
class Times:
    """The event times of one partition's rows in a batch, and when the last of them was ingested."""

    least: int
    greatest: int
    ingested: int


@dataclass(frozen=True)
class Wait:
    """A partition that is waited for, as of when a flow last looked how far its records have come.

    It lasts as long as runs look. A pause that is longer than the timeout by more than ten seconds, as no
    run was up or the machine slept, counts as half of it: so it alone ends no wait, and runs that come hours
    apart do not wait for ever.

    Attributes:
        looked: when that was.
        end: the offset up to which its records have to come, too: all that there were when the wait began,
            then when it had lasted long enough, or after a longer pause since. None: they have, after that.
        lasted: for how long it had been waited for.
    """

    looked: int
    end: int | None
    lasted: int = 0

    def over(self, timeout: int) -> bool:
        """Whether it is not waited for any more."""
        return self.lasted >= timeout and self.end is None

    def looking(self, now: int, come: int, there: int, timeout: int) -> Wait:
        """As of now, where records have come up to an offset, and there are some up to another."""
        pause = max(now - self.looked, 0)  # the clock may have been set back
        away = pause > timeout + _BETWEEN
        lasted, end = self.lasted + ((timeout + 1) // 2 if away else pause), self.end
        if lasted >= timeout:
            if self.lasted < timeout or (away and (end is None or come < end)):
                end = there
            if end is not None and come >= end:
                end = None
        return Wait(now, end, lasted)


@dataclass(frozen=True)
class EventTime:
    """How far event time has come after a batch.

    Attributes:
        reached: {partition → its greatest event time}; a partition is `cluster/topic/number`.
        seen: {partition → when its newest row was ingested}.
        closed: windows whose end and delay lie before are closed.
        idle: the partitions that did not hold back `closed`, being silent.
        awaited: {partition that has never had an event time, or held it back as more of it was on its way →
            how long it has been waited for}.
        delay: the one that `closed` has in it; None: that was not kept.
    """

    reached: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    closed: int = NEVER
    idle: tuple[str, ...] = ()
    awaited: dict[str, Wait] = field(default_factory=dict)
    delay: int | None = None

    @classmethod
    def parse(cls, value: Mapping[str, Any] | None) -> EventTime:
        """What `json` wrote; before the first batch nothing was.

        A wait of a form that is no more begins anew.
        """
        if not value:
            return cls()
        awaited = {
            each: Wait(**wait) for each, wait in value.get("awaited", {}).items() if isinstance(wait, dict)
        }
        return cls(**{**value, "idle": tuple(value["idle"]), "awaited": awaited})

    def json(self) -> dict[str, Any]:
        """As intents and commits keep it."""
        kept = {"reached": self.reached, "seen": self.seen, "closed": self.closed, "idle": list(self.idle)}
        awaited = {each: asdict(wait) for each, wait in self.awaited.items()}
        kept |= {"awaited": awaited} if awaited else {}
        return kept if self.delay is None else {**kept, "delay": self.delay}

    def by(self, delay: int) -> EventTime:
        """The same, told by a delay: what was over by another one is over, and no more."""
        if self.delay is None or self.closed == NEVER:
            return replace(self, delay=delay)
        return replace(self, closed=self.closed - self.delay + delay, delay=delay)

    def is_past(self, other: EventTime) -> bool:
        """Whether all is over that is by another one."""
        return self.closed >= (other if self.delay is None else other.by(self.delay)).closed

    def after(self, times: Mapping[str, Times]) -> EventTime:
        """With a batch's rows; nothing closes."""
        reached, seen = dict(self.reached), dict(self.seen)
        for partition, found in times.items():
            reached[partition] = max(found.greatest, reached.get(partition, NEVER))
            seen[partition] = max(found.ingested, seen.get(partition, NEVER))
        return replace(self, reached=reached, seen=seen)

    def low(self, partitions: Iterable[str]) -> int:
        """What all of these partitions have reached."""
        return min((self.reached.get(partition, NEVER) for partition in partitions), default=NEVER)

    def closing(
        self, upto: int, idle: Iterable[str] = (), awaited: Mapping[str, Wait] | None = None
    ) -> EventTime:
        """With all closed that is over at `upto`; what is closed never opens again."""
        closed = max(self.closed, upto)
        return replace(self, closed=closed, idle=tuple(sorted(idle)), awaited=dict(awaited or {}))


@dataclass(frozen=True)
class Lateness:
    """What makes a row of a windowed aggregate late: its partition had come too far before it.

    A row in a window of time is late when that had reached the window's end and the delay; one of a session
    when it lies more than the delay behind: later ones could find that their session is closed.

    Attributes:
        column: the event time.
        delay: how much later rows may come.
        session: whether the windows are sessions.
        own: whether the windows are those that hold the event time.
    """

    column: str
    delay: int
    session: bool
    own: bool = True

    def none(self, before: EventTime, times: Mapping[str, Times]) -> bool:
        """Whether no row of a batch can be late: none lies as far behind what its partition reaches. Where
        windows are of another time, that tells nothing."""
        after = before.after(times)
        return self.own and all(
            found.least + self.delay >= max(after.reached[partition], before.closed)
            for partition, found in times.items()
        )

    def told(self, stream: DataFrame, before: EventTime) -> DataFrame:
        """The rows of the source, each with what its partition has reached by then, in `_source.reached`.

        So rows count that the definition then filters out; and what every definition keeps carries it on.

        Args:
            stream: the rows of one batch.
            before: how far event time had come before it.
        """
        order = Window.partitionBy(*(f"{SOURCE}.{part}" for part in _PARTITION)).orderBy(f"{SOURCE}.offset")
        earlier = order.rangeBetween(Window.unboundedPreceding, -1)  # not the other rows of the same record
        reached = F.greatest(F.max(self._time()).over(earlier), _known(before.reached), F.lit(before.closed))
        return stream.withColumn(SOURCE, F.col(SOURCE).withField(_REACHED, reached))

    def told_few(self, rows: pa.Table, columns: StructType, before: EventTime) -> tuple[pa.Table, StructType]:
        """The same of rows in memory, by what they are to Spark."""
        source, fields = rows[SOURCE].combine_chunks(), rows.schema.field(SOURCE).type.fields
        places = {field.name: source.field(field.name) for field in fields}
        reached = _reached(places, rows[self.column], before)
        more = pa.StructArray.from_arrays(
            [*places.values(), pa.array(reached)],
            fields=[*fields, pa.field(_REACHED, pa.int64())],
            mask=source.is_null(),
        )
        told = columns[SOURCE].dataType
        assert isinstance(told, StructType)
        kinds = StructType([*told, StructField(_REACHED, LongType())])
        at = rows.schema.names.index(SOURCE)
        return rows.set_column(at, SOURCE, more), StructType(
            [StructField(SOURCE, kinds, f.nullable) if f.name == SOURCE else f for f in columns]
        )

    def marked(self, rows: DataFrame) -> DataFrame:
        """Rows as `aggregate.rows` gives them, of a source that was `told`, and whether they are `LATE`."""
        last = F.unix_micros(f"{WINDOW}.start") if self.session else F.unix_micros(f"{WINDOW}.end") - 1
        return rows.withColumn(LATE, F.coalesce(F.col(SOURCE)[_REACHED] > last + self.delay, F.lit(False)))

    def late(self, rows: DataFrame) -> DataFrame:
        """The late ones of `marked` rows: their columns with the window that they are late for, the watermark
        that they missed (UTC), and by how many seconds they lie behind it."""
        source, watermark = F.col(SOURCE), F.col(SOURCE)[_REACHED] - self.delay
        fields = [name for name in rows.select(f"{SOURCE}.*").columns if name != _REACHED]
        place = F.when(source.isNotNull(), F.struct(*(source[name].alias(name) for name in fields)))
        told = {
            WATERMARK: F.timestamp_micros(watermark),
            LATENESS: (watermark - self._time()) / 1e6,
            SOURCE: place,
        }
        return rows.where(LATE).withColumns(told).drop(WINDOW, LATE)

    def _time(self) -> Column:
        return F.unix_micros(named(self.column).cast("timestamp"))


def times(files: Sequence[str], column: str, columns: pa.Schema) -> dict[str, Times]:
    """{partition → the times of its rows} of Parquet files, rows without an event time aside.

    Args:
        files: the files.
        column: the event time.
        columns: of the table that the files are of.
    """
    if not files:
        return {}
    name = scratch.quoted(column)
    partition = " || '/' || ".join(f'{SOURCE}."{part}"' for part in _PARTITION)
    with scratch.connection() as connection:
        rows = scan(connection, columns, files)
        found = connection.execute(
            f"SELECT {partition}, epoch_us(min({name})), epoch_us(max({name})), epoch_us(max(ingested_at)) "
            f"FROM {rows.sql} WHERE {name} IS NOT NULL GROUP BY 1",
            dict(rows.parameters),
        ).fetchall()
    return {partition: Times(*values) for partition, *values in found}


def _reached(places: Mapping[str, pa.Array], column: pa.ChunkedArray, before: EventTime) -> NDArray[np.int64]:
    """What the partition of each row has reached by the records before that row's.

    Args:
        places: where in Kafka the rows stand.
        column: their event times.
        before: how far event time had come before them.
    """
    parts = [pc.fill_null(places[part].cast(pa.string()), "") for part in _PARTITION]
    named = pc.binary_join_element_wise(*parts, "/").dictionary_encode()
    partition = named.indices.to_numpy(zero_copy_only=False)
    offset = places["offset"].fill_null(-1).to_numpy(zero_copy_only=False)
    micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())
    time = micros.fill_null(NEVER).to_numpy()
    order = np.lexsort((offset, partition))
    found = np.empty(len(order), np.int64)
    ends = np.searchsorted(partition[order], np.arange(len(named.dictionary) + 1))
    for name, begin, end in zip(named.dictionary.to_pylist(), ends, ends[1:], strict=False):
        rows = order[begin:end]
        come = np.maximum.accumulate(time[rows])
        earlier = np.concatenate(([NEVER], come[:-1]))
        begins = np.concatenate(([True], np.diff(offset[rows]) != 0))  # a record, which may be many rows
        first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        found[rows] = np.maximum(earlier[first], max(before.closed, before.reached.get(name, NEVER)))
    return found


def _known(reached: Mapping[str, int]) -> Column:
    """What a row's partition had reached, of a map."""
    if not reached:
        return F.lit(None).cast("long")
    partition = F.concat_ws("/", *(F.col(f"{SOURCE}.{part}").cast("string") for part in _PARTITION))
    return F.create_map(*[F.lit(value) for pair in reached.items() for value in pair])[partition]
