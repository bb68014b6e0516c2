"""Kafka → bronze, of backlogs: a Structured Streaming query.

Each query begins where the table's newest commit ends and ends where the topic ended when it began, and each
of its batches is the table's next one. Spark's own checkpoint lasts as long as its query; only before the
table's first commit it is gone on with, as it says where the source began.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.connectors import kafka
from headwater.errors import FlowError
from headwater.flows.context import Context
from headwater.flows.gaps import Watched
from headwater.flows.reading import Commit, Size, Written, starting
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


class Querying:
    """Reads a topic by queries.

    Args:
        context: the run.
        topic: the definition.
        table: the topic's.
        watched: the topic, watched for gaps.
        size: how large its records are.
        turn: held while a batch is committed.
    """

    def __init__(
        self, context: Context, topic: Topic, table: Target, watched: Watched, size: Size, turn: Lock
    ) -> None:
        self._context, self._topic, self._table, self._watched = context, topic, table, watched
        self._size, self._busy = size, turn
        self._client = kafka.client_options(context.project.conf, context.bootstrap)
        self._parallelism = topic.limits.parallelism or context.project.conf.parallelism
        self._spark: SparkSession = sessions.child(context.spark, parallelism=self._parallelism)
        self.checkpoint: Path = context.lake.flow_folder(topic.name) / "checkpoint"
        self._failure: Exception | None = None

    def __call__(self, commit: Commit, look_up: Callable[[], None]) -> bool:
        """Read what the topic has now; False: not all of it, as batches have grown past their bound in bytes.

        Args:
            commit: commits the offsets after a batch, and what it writes.
            look_up: called now and then.

        Raises:
            FlowError: Kafka has no more what the table is to read next.
            Exception: what made the query fail.
        """
        self._failure = None
        bound = self._size.admitted()
        query = self._start(bound, commit)
        try:
            while not query.awaitTermination(1):
                look_up()
                if self._context.stop.is_set() or self._outgrown(bound):
                    break
        except Exception as e:
            raise self._watched.why(self._failure or e) from e
        finally:
            with self._busy:
                query.stop()
        return not self._outgrown(bound)

    def _outgrown(self, bound: int) -> bool:
        return bound > 2 * self._size.admitted()

    def _start(self, bound: int, commit: Commit) -> StreamingQuery:
        conf = self._context.project.conf
        options: dict[str, str | int] = {
            **kafka.FETCH,
            **kafka.source_options(conf, self._context.bootstrap),
            "subscribe": self._topic.topic,
            "maxOffsetsPerTrigger": bound,
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            **self._starting(),
        }
        return (
            self._spark.readStream.format("kafka")
            .options(**options)
            .load()
            .writeStream.queryName(self._topic.name)
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(lambda frame, number: self._batch(frame, number, commit))
            .trigger(availableNow=True)
            .start()
        )

    def _batch(self, frame: DataFrame, number: int, commit: Commit) -> None:
        with self._busy:
            if self._context.stop.is_set():
                raise FlowError(
                    f"{self._topic.name}: stopped before batch {number}",
                    code="STOPPED",
                    table=self._topic.name,
                    file=self._topic.file,
                )
            try:
                self._read(frame, number, commit)
            except Exception as e:
                self._failure = e  # as it is: Spark would wrap it
                raise

    def _read(self, frame: DataFrame, number: int, commit: Commit) -> None:
        consumed, mine = self._offsets(number), self._table.flows.get(self._topic.name, {})
        if (mine.get("consumed"), mine.get("topics", {})) == (consumed, self._watched.ids()):
            return  # Spark plans the first batch of a query even where there is nothing to read

        def write(pinned: Intent) -> Written:
            records = self._columns(frame, pinned.clock)
            if self._are_few(pinned.consumed):
                files = self._table.write(records.coalesce(1).toArrow(), pinned.batch)
            else:
                files = self._table.write(records.coalesce(self._parallelism), pinned.batch, _PARQUET)
            size, newest = self._table.payload(files, "value"), self._table.newest(files, "timestamp")
            return Written(files, self._table.rows(files), size, newest)

        commit(consumed, write)

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

    def _are_few(self, after: dict[str, Any]) -> bool:
        """Whether a batch's records are few, by its offsets (see `flows.rows`)."""
        mine = self._table.flows.get(self._topic.name)
        if mine is None:
            return False
        records = sum(
            end - mine["consumed"].get(topic, {}).get(partition, 0)
            for topic, partitions in after.items()
            for partition, end in partitions.items()
        )
        return bool(records <= FEW and records * self._size.of_record <= FEW_BYTES)

    def _offsets(self, number: int) -> dict[str, Any]:
        """The offsets after batch `number`, from Spark's log of offsets: {topic: {partition: offset}}."""
        lines = (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1]))

    def _starting(self) -> dict[str, str]:
        """Spark's options for where a query begins: where the table's newest commit ends.

        Raises:
            FlowError: Kafka has no more what comes there.
        """
        reached, now = self._watched.begin()
        if self._topic.name in self._table.flows:
            self._forget_checkpoint()
        if reached is None:
            return starting(self._context.start, self._client, self._topic.topic, self.checkpoint)
        begin = {str(partition): at for partition, at in reached.begin(now).items()}
        return {"startingOffsets": json.dumps({self._topic.topic: begin})}

    def _forget_checkpoint(self) -> None:
        """Remove what the last query kept, whole or not at all."""
        left = self.checkpoint.parent / "checkpoint.left"
        shutil.rmtree(left, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.checkpoint.rename(left)
        shutil.rmtree(left, ignore_errors=True)
