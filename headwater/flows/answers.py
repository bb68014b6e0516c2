"""What the rows of one batch are told by their table's lookup; see `headwater.flows.lookups`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headwater.connectors.decode import SOURCE
from headwater.connectors.lookups import Answer, Key
from headwater.flows.lookups import ASKED_AT, KNOWN, Lookups, Near, Partition
from headwater.runtime import catalyst, in_memory
from headwater.storage import pruning, stored
from headwater.storage.commit import Part
from headwater.storage.erasure import Offsets
from headwater.storage.lake import Place
from headwater.storage.places import PLACE
from headwater.storage.target import Target

Lines: TypeAlias = list[tuple[int, Answer]]  # from which offset on an answer holds, in order

_PARTITION = ("cluster", "topic", "partition")
_LEAST, _MOST, _OFFSETS = "__least", "__most", "__offsets"
_PLACED = [  # partition, and offsets from and below which a line holds
    StructField(name, kind)
    for name, kind in zip(
        [*_PARTITION, _LEAST, _MOST],
        [StringType(), StringType(), IntegerType(), LongType(), LongType()],
        strict=True,
    )
]


@dataclass(frozen=True)
class _Group:
    """Rows of one key in one partition.

    Attributes:
        key, partition: which.
        offsets: theirs, in order; of rows in Spark the first and last alone, unless an erase is under way.
    """

    key: Key
    partition: Partition
    offsets: Sequence[int]

    @property
    def least(self) -> int:
        return self.offsets[0]

    @property
    def most(self) -> int:
        return self.offsets[-1]


class Answers:
    """What the rows of one batch are told, however often they are asked about.

    Args:
        lookups: says it.
        table: the table that the rows are for; None: an empty one.
        clock: the batch's time.

    Attributes:
        reached: {partition → the last offset of which rows were told something}, with this batch's.
    """

    def __init__(self, lookups: Lookups, table: Target | None, clock: str) -> None:
        self._lookups, self._asked_at = lookups, datetime.fromisoformat(clock)
        self._keys = lookups.lookup.keys
        self._before, self._sources = dict[str, int](), list[Near]()
        self._erased: Offsets = {}
        if table is not None and not lookups.is_off:
            self._before, self._sources, self._erased = lookups.told_before(table)
        self.reached = dict(self._before)
        self._new: list[dict[str, Any]] = []  # lines of `<table>__lookup`
        self._known: dict[tuple[Key, Partition], Lines] = {}
        self._others: dict[tuple[Key, Partition, int], dict[str, Any]] = {}  # lines of the live table's
        self._now: dict[Key, Answer] = {}

    def few(self, rows: pa.Table, columns: StructType) -> tuple[pa.Table, StructType]:
        """Rows of the batch in memory, and what they are to Spark, with the columns of the answers.

        Raises:
            LookupUnavailable, FlowError: see `Lookups.now`.
        """
        given = self._lookups.columns
        told: list[Answer] = [None] * len(rows)
        if not self._lookups.is_off:
            keys = list(zip(*(rows[name].to_pylist() for name in self._keys), strict=True))
            places = [tuple(source.values()) for source in rows[SOURCE].to_pylist()]
            some = [at for at, key in enumerate(keys) if None not in key]
            ends: dict[tuple[Key, Partition], list[int]] = {}
            for at in some:
                (*partition, offset) = places[at]
                ends.setdefault((keys[at], tuple(partition)), []).append(offset)
            self._know([_Group(*each, sorted(found)) for each, found in ends.items()])
            for at in some:
                (*partition, offset) = places[at]
                lines = self._known[keys[at], tuple(partition)]
                told[at] = self._until(lines, offset)[-1][1]
        for at, field in enumerate(stored.schema(given)):
            values = [answer[at] if answer is not None else None for answer in told]
            rows = rows.append_column(field, pa.array(values, field.type))
        return rows, StructType([*columns, *given])

    def many(self, stream: DataFrame) -> DataFrame:
        """The same of rows in Spark."""
        if self._lookups.is_off:
            return stream.withColumns({f.name: F.lit(None).cast(f.dataType) for f in self._lookups.columns})
        groups = self._groups(stream)
        self._know(groups)
        return self._joined(stream, groups)

    def _know(self, groups: list[_Group]) -> None:
        """Get to know what rows are told."""
        self._read(groups)
        lacking = dict.fromkeys(g.key for g in groups if g.key not in self._now and self._is_open(g))
        self._now |= self._lookups.now(lacking)
        for group in groups:
            self._tell(group)

    def parts(self, table: Place, batch: str) -> dict[str, Part]:
        """What is new of `<table>__lookup`, written as files of it; nothing where nothing is."""
        if not self._new:
            return {}
        target = self._lookups.target(table)
        rows = pa.Table.from_pylist(self._new, self._lookups.schema)
        return {target.place.name: target.write(rows, batch)}

    def hold(self) -> None:
        """Hold what the newest rows were told, once the batch is committed."""
        self._lookups.hold({each: lines[-1][1] for each, lines in self._known.items() if lines})

    def _groups(self, stream: DataFrame) -> list[_Group]:
        """The keys of rows, in each partition, with their offsets."""
        keys = [F.col(f"`{name}`") for name in self._keys]
        place = [F.col(f"{SOURCE}.{name}").alias(f"__{name}") for name in _PARTITION]
        there = stream.where(_all([key.isNotNull() for key in keys])).groupBy(*keys, *place)
        offset = F.col(f"{SOURCE}.offset")
        ends = F.array(F.min(offset), F.max(offset))
        offsets = F.sort_array(F.collect_set(offset)) if self._erased else ends
        rows = there.agg(offsets.alias(_OFFSETS)).toArrow()
        keyed = zip(*(rows[name].to_pylist() for name in self._keys), strict=True)
        placed = zip(*(rows[f"__{name}"].to_pylist() for name in _PARTITION), strict=True)
        return [_Group(*each) for each in zip(keyed, placed, rows[_OFFSETS].to_pylist(), strict=True)]

    def _read(self, groups: list[_Group]) -> None:
        """Get to know what rows of these keys were told before."""
        unread, last = list[_Group](), self._lookups.last
        for group in groups:
            each = group.key, group.partition
            if each not in self._known and each in last and group.least > self._end(group.partition):
                self._known[each] = [(-1, last[each])]
            elif each not in self._known:
                unread.append(group)
        wanted = {(group.key, group.partition) for group in unread}
        for at, near in enumerate(self._sources if unread else ()):
            for row in self._lines(near, unread):
                key, (*partition, offset) = self._place_of(row)
                each = key, tuple(partition)
                if each in wanted and all(offset != other for other, _ in self._known.get(each, ())):
                    insort(self._known.setdefault(each, []), (offset, self._answer_of(row)), key=_offset)
                    if at:
                        self._others[*each, offset] = row

    def _lines(self, near: Near, groups: list[_Group]) -> list[dict[str, Any]]:
        """The lines that there are near the keys of these rows."""
        names = self._keys
        kinds = pa.schema([self._lookups.schema.field(name) for name in names])
        keys = pa.Table.from_pylist([dict(zip(names, group.key, strict=True)) for group in groups], kinds)
        found = near(pruning.reaches(keys, names))
        lines: list[dict[str, Any]] = (
            stored.rows(list(found), self._lookups.schema).to_pylist() if found else []
        )
        return lines

    def _tell(self, group: _Group) -> None:
        """Have a line for what rows are told that they were not told before."""
        lines = self._known.setdefault((group.key, group.partition), [])
        end = self._end(group.partition)
        if group.least <= end and not self._until(lines, group.least):
            self._add(lines, group, group.least)
        if group.most > end:
            first = max(group.least, end + 1)
            before = self._until(lines, first)
            if not before or before[-1][1] != self._now[group.key]:
                self._add(lines, group, first)
        for offset, end, _ in self._of(group):
            if (row := self._others.pop((group.key, group.partition, offset), None)) is not None:
                self._copy(row, group, offset, end)
        name = _named(group.partition)
        self.reached[name] = max(group.most, self.reached.get(name, -1))

    def _copy(self, row: dict[str, Any], group: _Group, offset: int, end: int) -> None:
        """Have a line of the live table's as it is; one that says where an erased record stood says instead
        where the first of the rows stands that are left of those it tells, and goes where none is."""
        if offset in self._erased.get(group.partition, ()):
            first = group.offsets[bisect_left(group.offsets, offset)]
            if first >= end:
                return
            row = row | {SOURCE: row[SOURCE] | {"offset": first}}
        self._new.append(row)

    def _add(self, lines: Lines, group: _Group, offset: int) -> None:
        answer = self._now[group.key]
        insort(lines, (offset, answer), key=_offset)
        place = dict(zip(PLACE, (*group.partition, offset), strict=True))
        self._new.append(
            dict(zip(self._keys, group.key, strict=True))
            | {SOURCE: place, KNOWN: answer is not None, ASKED_AT: self._asked_at}
            | dict(zip(self._lookups.columns.names, answer or (), strict=False))
        )

    def _is_open(self, group: _Group) -> bool:
        """Whether there are rows that nothing says what they were told."""
        lines = self._known.get((group.key, group.partition), [])
        return group.most > self._end(group.partition) or not self._until(lines, group.least)

    def _end(self, partition: Partition) -> int:
        """The last offset of a partition of which rows were told before this batch."""
        return self._before.get(_named(partition), -1)

    @staticmethod
    def _until(lines: Lines, offset: int) -> Lines:
        """The lines up to an offset."""
        return lines[: bisect_right(lines, offset, key=_offset)]

    def _of(self, group: _Group) -> list[tuple[int, int, Answer]]:
        """The lines that rows are told by: from which offset on, and below which, they are told what."""
        lines = self._known[group.key, group.partition]
        first = len(self._until(lines, group.least)) - 1
        lines = self._until(lines, group.most)[max(first, 0) :]
        ends = [*(offset for offset, _ in lines[1:]), group.most + 1]
        return [(offset, end, answer) for (offset, answer), end in zip(lines, ends, strict=True)]

    def _joined(self, stream: DataFrame, groups: list[_Group]) -> DataFrame:
        """Rows with the answers: by their keys, where all of a key are told the same; else by their place."""
        told: dict[Key, Answer] = {}
        alike = True
        for group in groups:
            for *_, answer in self._of(group):
                alike = alike and told.setdefault(group.key, answer) == answer
        if alike:
            lines = [(*key, *answer) for key, answer in told.items() if answer is not None]
        else:
            lines = [line for group in groups for line in self._placed(group)]
        fields = [stream.schema[name] for name in self._keys]
        kinds = [*fields, *([] if alike else _PLACED), *self._lookups.columns]
        names = [f"_lookup_{at}" for at in range(len(kinds))]
        columns = StructType(
            [StructField(name, kind.dataType) for name, kind in zip(names, kinds, strict=True)]
        )
        rows = pa.Table.from_pylist(
            [dict(zip(names, line, strict=True)) for line in lines], stored.schema(columns)
        )
        answers = F.broadcast(in_memory.frame(stream.sparkSession, rows, columns))
        own = [catalyst.named(name) for name in stream.columns]
        same = [catalyst.named(field.name) == F.col(name) for field, name in zip(fields, names, strict=False)]
        if not alike:
            place = [F.col(f"{SOURCE}.{name}") for name in PLACE]
            *partition, first, next_ = names[len(fields) : len(fields) + len(_PLACED)]
            same += [one == F.col(name) for one, name in zip(place, partition, strict=False)]
            same += [F.col(first) <= place[-1], place[-1] < F.col(next_)]
        of_answers = zip(names[-len(self._lookups.columns) :], self._lookups.columns.names, strict=True)
        new = [F.col(name).alias(called) for name, called in of_answers]
        return stream.join(answers, _all(same), "left").select(*own, *new)

    def _placed(self, group: _Group) -> Iterator[tuple[Any, ...]]:
        """The lines of rows: key, partition, the first offset, the one after the last, values."""
        for offset, end, answer in self._of(group):
            if answer is not None:
                yield (*group.key, *group.partition, offset, end, *answer)

    def _place_of(self, row: Mapping[str, Any]) -> tuple[Key, list[Any]]:
        """The key of a line, and from which record on it holds."""
        return tuple(row[name] for name in self._keys), [row[SOURCE][name] for name in PLACE]

    def _answer_of(self, row: Mapping[str, Any]) -> Answer:
        return tuple(row[name] for name in self._lookups.columns.names) if row[KNOWN] else None


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__and__, conditions)


def _offset(line: tuple[int, Answer]) -> int:
    return line[0]


def _named(partition: Partition) -> str:
    return "/".join(map(str, partition))
