"""What a table's lookup says of the keys of its rows, and what it said of those that are there.

A row is told what is known when its batch is built. `<table>__lookup` has, for each key and partition of
Kafka, from which record on which answer holds: a line only where it is another than before. So a batch that
is done again, a replay, a rebuild or a proof tells each row what it was told then, however rows are cut into
batches; only of rows beyond those that were told (`Identity.reached`) is anything asked.

Answers are held in memory as long as they hold. What is asked is asked when a batch is built: as long as
there is no answer the batch waits, and nothing of it is committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.common.durations import interval
from headwater.connectors import lookups
from headwater.connectors.decode import SOURCE
from headwater.connectors.lookups import Answer, Key
from headwater.flows.context import Context
from headwater.project.definitions import Table
from headwater.storage import pruning, stored
from headwater.storage.erasure import Offsets
from headwater.storage.lake import Place
from headwater.storage.names import lookup_name
from headwater.storage.places import PLACE
from headwater.storage.target import Target

ASKED_AT, KNOWN = "_asked_at", "_known"
Partition: TypeAlias = tuple[str, str, int]  # cluster, topic, number
Near: TypeAlias = Callable[[Mapping[str, pruning.Reach]], Collection[str]]  # files, by where their keys lie


class Lookups:
    """What the lookup of one table says.

    Args:
        context: the run.
        table: the definition.
        stream: the columns of its stream.

    Attributes:
        lookup: the lookup.
        columns: of its answers.
        schema: of the table of answers, see `schema`.
        last: what the newest rows were told, of those whose answer is held in memory.
    """

    def __init__(self, context: Context, table: Table, stream: StructType) -> None:
        self.lookup = context.project.lookups[table.lookup]
        self.columns = lookups.columns(self.lookup)
        self.schema = schema(stream, self.lookup.keys, self.columns)
        self._context, self._name, self._file = context, table.name, table.file
        self._target: Target | None = None
        self._types = [self.schema.field(name).type for name in self.lookup.keys]
        self._asker = lookups.asker(self.lookup, self._types, context.project.conf)
        self._ttl = interval(self.lookup.ttl)
        self._held: OrderedDict[Key, tuple[Answer, datetime]] = OrderedDict()
        self.last: dict[tuple[Key, Partition], Answer] = {}

    @property
    def is_off(self) -> bool:
        """Whether the environment has it off."""
        return self._asker is None

    def target(self, table: Place) -> Target:
        """The table of its answers beside a table: made if it is missing."""
        if self._target is None:
            name = lookup_name(table.name)
            comment = f"What {self.lookup.name} said of the rows of {table.name}, and from which record on"
            self._target = self._context.open_beside(table.name, name, self.schema, comment)
            self._target.require(self.schema, self._file)
        return self._target

    def told_before(self, table: Target) -> tuple[dict[str, int], list[Near], Offsets]:
        """How far rows of a table were told something, see `Identity.reached`; where that stands: in its own
        table of answers, and in that of the live one that it is built to replace, or to prove; and which
        records that one must no more speak of."""
        reached = dict(table.flows.get(self._name, {}).get("reached", {}))
        sources: list[Near] = [self.target(table.place).near]
        before = self._context.bounds.answered(self._name)
        if before is None:
            return reached, sources, {}
        for partition, most in before.reached.items():
            reached[partition] = max(most, reached.get(partition, -1))
        return reached, [*sources, before.files], before.erased

    def now(self, keys: Iterable[Key]) -> dict[Key, Answer]:
        """What is known of keys now.

        Raises:
            LookupUnavailable: there was no answer.
            FlowError: there was one that is not as the lookup declares it.
        """
        assert self._asker is not None
        now, found, unknown = self._context.now(), dict[Key, Answer](), list[Key]()
        for key in keys:
            answer, until = self._held.get(key, (None, now))
            if until > now:
                found[key] = answer
                self._held.move_to_end(key)
            else:
                unknown.append(key)
        if unknown:
            with self._context.queue.aside():
                asked = lookups.ask(self.lookup, self._asker, unknown, self._types)
            for key, answer in asked.items():
                self._held[key] = answer, now + self._ttl
                self._held.move_to_end(key)
            found |= asked
            while len(self._held) > self.lookup.most:
                self._held.popitem(last=False)
        return found

    def hold(self, told: Mapping[tuple[Key, Partition], Answer]) -> None:
        """Hold what the newest rows were told, once they are committed."""
        if len(self.last) + len(told) > self.lookup.most:
            self.last.clear()
        self.last.update(told)


def schema(stream: StructType, keys: Iterable[str], columns: StructType) -> pa.Schema:
    """The columns of a table of answers: the keys, the answer's, whether something was known, when (UTC) it
    was asked; and `_source`: from which record on it holds for those of the same partition of Kafka."""
    of_stream = stored.schema(stream)
    return pa.schema(
        [
            *(of_stream.field(name) for name in keys),
            *stored.schema(columns),
            pa.field(KNOWN, pa.bool_()),
            pa.field(ASKED_AT, pa.timestamp("us", "UTC")),
            pa.field(SOURCE, pa.struct(list(PLACE.items()))),
        ]
    )
