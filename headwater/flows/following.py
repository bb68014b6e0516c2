"""Kafka → bronze, of few records: read by this process as they come.

A job of Spark's takes some 0.1 s, however few its records are. So what comes to a topic that is read to its
end is read here, until it is more than this is for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Message

from headwater.common.durations import interval
from headwater.connectors import kafka
from headwater.connectors.kafka.records import Records
from headwater.connectors.kafka.topics import unanswered
from headwater.errors import HeadwaterError
from headwater.flows.context import Context
from headwater.flows.gaps import Watched
from headwater.flows.reading import Commit, Write, Written
from headwater.project.definitions import Topic
from headwater.storage.intent import Intent
from headwater.storage.target import Target

FEW = 10_000  # records that a topic may be behind for this to begin
_MOST = 20_000  # of one batch; a topic that is further behind than that is left to Spark
_BEAT = 0.5  # seconds after which it looks up, if nothing comes
_PARTITIONS = 5.0  # seconds after which it looks whether the topic has more partitions


class Following:
    """Reads what comes to a topic.

    Args:
        context: the run.
        topic: the definition.
        table: the topic's.
        watched: the topic, watched for gaps.

    Attributes:
        apart: seconds from one batch to the next.
    """

    def __init__(self, context: Context, topic: Topic, table: Target, watched: Watched) -> None:
        self._context, self._topic, self._table, self._watched = context, topic, table, watched
        conf = context.project.conf
        self.apart = interval(context.trigger or topic.limits.trigger or conf.trigger).total_seconds()
        self._options = kafka.consumer_options(conf, context.bootstrap)

    def behind(self) -> int | None:
        """How many records the topic has that the table has not; None where the table has not begun.

        Raises:
            FlowError: Kafka has no more what the table is to read next.
            BrokerError: Kafka can't be reached, or has no such topic.
        """
        reached, now = self._watched.begin()
        if reached is None:
            return None
        return sum(now.end.values()) - sum(reached.begin(now).values())

    def __call__(self, most: Callable[[], int], commit: Commit, look_up: Callable[[], None]) -> None:
        """Read until the run ends, the topic has more partitions, or more has come than this is for.

        Args:
            most: says how many records the next batch may have.
            commit: commits the offsets after a batch, and what it writes.
            look_up: called now and then.

        Raises:
            FlowError: Kafka has no more what the table is to read next; or as of `commit`.
            BrokerError: Kafka refuses.
        """
        reached, now = self._watched.begin()
        if reached is None:
            return
        cluster = self._context.project.conf.cluster
        try:
            with Records(self._options, self._topic.topic, reached.begin(now), cluster) as records:
                self._read(records, most, commit, look_up)
        except KafkaException as e:
            why = self._watched.why(e)
            raise why if isinstance(why, HeadwaterError) else unanswered(self._topic.topic, e) from e

    def _read(
        self, records: Records, most: Callable[[], int], commit: Commit, look_up: Callable[[], None]
    ) -> None:
        done, due, looked, stop = dict(records.next), 0.0, time.monotonic(), self._context.stop
        while not stop.is_set():
            look_up()
            upto = min(most(), _MOST)
            found = records.take(upto, within=_BEAT, due=due, wait=stop.wait)
            if stop.is_set():
                break
            due = time.monotonic() + self.apart
            if records.next != done:
                done = dict(records.next)
                after = {str(partition): offset for partition, offset in sorted(done.items())}
                commit({self._topic.topic: after}, self._writing(records, found))
            if len(found) == upto and (self.behind() or 0) > _MOST:
                break
            if time.monotonic() - looked > _PARTITIONS:
                looked = time.monotonic()
                if records.partitions() != len(done):
                    break

    def _writing(self, records: Records, found: list[Message]) -> Write:
        """What writes records."""

        def write(pinned: Intent) -> Written:
            if not found:
                return Written([], 0, 0, None)
            read_at = pa.scalar(datetime.fromisoformat(pinned.clock), pa.timestamp("us", "UTC"))
            rows = records.rows(found, read_at)
            size = pc.sum(pc.binary_length(rows["value"])).as_py() or 0
            newest = pc.max(rows["timestamp"]).cast(pa.int64()).as_py() // 1000
            return Written(self._table.write(rows, pinned.batch), len(rows), size, newest)

        return write
