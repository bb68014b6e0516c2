"""Kafka → bronze, of backlogs: read by Spark, a range of offsets at a time.

Each range begins where the table's newest commit ends, and is the table's next batch; the last one ends where
the topic ended when reading began.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.connectors import kafka
from headwater.connectors.kafka.extent import readable
from headwater.connectors.kafka.records import Records
from headwater.connectors.kafka.topics import TIMEOUT, unanswered
from headwater.flows.context import Context
from headwater.flows.gaps import Watched
from headwater.flows.reading import Commit, Size, Write, Written, first
from headwater.flows.rows import FEW, FEW_BYTES
from headwater.project.definitions import Topic
from headwater.runtime import sessions
from headwater.storage.intent import Intent
from headwater.storage.target import Target

# Payloads, offsets and times hardly repeat: looking for repetition and bounds in them costs a third.
_PARQUET = {
    "parquet.enable.dictionary#value": "false",
    "parquet.enable.dictionary#offset": "false",
    "parquet.enable.dictionary#timestamp": "false",
    "parquet.column.statistics.enabled#key": "false",
    "parquet.column.statistics.enabled#value": "false",
    "parquet.compression.codec.zstd.level": "1",
}

_BEAT = 1.0  # seconds, in which a run that is to end is seen
_BEYOND = "long overflow"  # a record's time, in a wrong unit, of which Spark's microseconds hold nothing


class Backlog:
    """Reads what a topic has.

    Args:
        context: the run.
        topic: the definition.
        table: the topic's.
        watched: the topic, watched for gaps.
        size: how large its records are.
    """

    def __init__(self, context: Context, topic: Topic, table: Target, watched: Watched, size: Size) -> None:
        self._context, self._topic, self._table, self._watched = context, topic, table, watched
        self._size = size
        conf = context.project.conf
        self._client = kafka.client_options(conf, context.bootstrap)
        self._parallelism = topic.limits.parallelism or conf.parallelism
        self._spark: SparkSession = sessions.child(context.spark, parallelism=self._parallelism)
        self._spark.conf.set("spark.sql.sources.useV1SourceList", _without_kafka(context.spark))
        self._options: dict[str, str] = {
            **kafka.FETCH,
            # Consumers are kept for the next batch, with what they have fetched, by the group's name.
            "kafka.group.id": f"headwater-{topic.name}",
            **kafka.source_options(conf, context.bootstrap),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
        }

    def __call__(self, commit: Commit, look_up: Callable[[], None]) -> None:
        """Read what the topic has now, or as much of it as there is time for before the run ends.

        Args:
            commit: commits the offsets after a batch, and what it writes.
            look_up: called before each batch.

        Raises:
            FlowError: Kafka has no more what the table is to read next.
            Exception: what made a batch fail.
        """
        reached, now = self._watched.begin()
        if reached is None:
            at, told = first(self._context.start, self._client, self._topic.topic, now), False
        else:
            at, told = reached.begin(now), reached.id == now.id or not now.id
        end = self._end(at)
        # A commit without records says where the table begins, and which topic it is of.
        while (at != end or not told) and not self._context.stop.is_set():
            look_up()
            until = _range(at, end, self._size.admitted())
            try:
                commit(self._consumed(until), self._writing(at, until))
            except Exception as e:
                raise self._watched.why(e) from e
            at, told = until, True

    def _end(self, begin: Mapping[int, int]) -> dict[int, int]:
        """Up to where the topic can be read now: for what an open transaction holds back Spark would wait."""
        options = kafka.consumer_options(self._context.project.conf, self._context.bootstrap)
        found = readable(options, self._topic.topic)
        return {partition: max(offset, found.get(partition, offset)) for partition, offset in begin.items()}

    def _consumed(self, until: Mapping[int, int]) -> dict[str, Any]:
        return {self._topic.topic: {str(partition): offset for partition, offset in sorted(until.items())}}

    def _writing(self, begin: Mapping[int, int], until: Mapping[int, int]) -> Write:
        """What writes the records from some offsets to others."""
        count = sum(until.values()) - sum(begin.values())

        def write(pinned: Intent) -> Written:
            if not count:
                return Written([], 0, 0, None)
            try:
                files = self._by_spark(begin, until, pinned, few=count <= FEW)
            except Exception as e:
                if _BEYOND not in str(e):
                    raise
                files = self._table.write(self._read_here(begin, until, pinned.clock), pinned.batch)
            size, newest = self._table.payload(files, "value"), self._table.newest(files, "timestamp")
            return Written(files, self._table.rows(files), size, newest)

        return write

    def _by_spark(
        self, begin: Mapping[int, int], until: Mapping[int, int], pinned: Intent, *, few: bool
    ) -> list[str]:
        records = self._columns(self._records(begin, until), pinned.clock)
        if few and (sum(until.values()) - sum(begin.values())) * self._size.of_record <= FEW_BYTES:
            return self._table.write(records.coalesce(1).toArrow(), pinned.batch)
        return self._table.write(records.coalesce(self._parallelism), pinned.batch, _PARQUET)

    def _read_here(self, begin: Mapping[int, int], until: Mapping[int, int], clock: str) -> pa.Table:
        """The records from some offsets to others, which Spark can't read.

        Raises:
            BrokerUnavailable: none come, or the run is to end.
        """
        own = {partition: offset for partition, offset in begin.items() if offset < until[partition]}
        options = kafka.consumer_options(self._context.project.conf, self._context.bootstrap)
        read_at = pa.scalar(datetime.fromisoformat(clock), pa.timestamp("us", "UTC"))
        with Records(options, self._topic.topic, own, self._context.project.conf.cluster) as records:
            parts, came = [records.rows([], read_at)], time.monotonic()
            while any(records.next[partition] < until[partition] for partition in own):
                if self._context.stop.is_set() or time.monotonic() - came > TIMEOUT:
                    raise unanswered(self._topic.topic, KafkaException(KafkaError(KafkaError._TIMED_OUT)))
                before = dict(records.next)
                found = records.take(FEW, within=_BEAT, due=0)
                came = came if records.next == before else time.monotonic()
                mine = [each for each in found if (each.offset() or 0) < until[each.partition() or 0]]
                parts.append(records.rows(mine, read_at))
        return pa.concat_tables(parts)

    def _records(self, begin: Mapping[int, int], until: Mapping[int, int]) -> DataFrame:
        partitions = [partition for partition, offset in until.items() if offset > begin[partition]]
        topic = self._topic.topic
        places = {
            "assign": {topic: partitions},
            "startingOffsets": {topic: {str(each): begin[each] for each in partitions}},
            "endingOffsets": {topic: {str(each): until[each] for each in partitions}},
        }
        said = {name: json.dumps(value) for name, value in places.items()}
        return self._spark.read.format("kafka").options(**self._options, **said).load()

    def _columns(self, frame: DataFrame, pinned_clock: str) -> DataFrame:
        # A number that stands in generated code has each batch compile it anew. What an array holds does not.
        clock = F.get(F.array(F.lit(pinned_clock).cast("timestamp")), F.col("partition") * 0)
        return frame.select(
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "headers",
            F.lit(self._context.project.conf.cluster).alias("cluster"),
            clock.alias("ingested_at"),
        )


def _range(at: Mapping[int, int], end: Mapping[int, int], most: int) -> dict[int, int]:
    """{partition → where the next batch ends}: no more than `most` offsets, of each partition its share."""
    left = {partition: end[partition] - offset for partition, offset in at.items()}
    total = sum(left.values())
    taken = [min(total, most) * so_far // max(1, total) for so_far in accumulate(left.values())]
    before = [0, *taken[:-1]]
    return {
        partition: offset + so_far - earlier
        for (partition, offset), so_far, earlier in zip(at.items(), taken, before, strict=True)
    }


def _without_kafka(spark: SparkSession) -> str:
    """What Spark reads by its older interface, but for Kafka: that makes an object of each row."""
    named = spark.conf.get("spark.sql.sources.useV1SourceList") or ""
    return ",".join(name for name in named.split(",") if name.strip() != "kafka")
