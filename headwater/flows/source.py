"""Kafka → bronze: a Structured Streaming query whose batches append one Delta commit each.

Spark's checkpoint holds the offsets of each batch before it is read; the commit carries the batch's
number and the offsets after it. A batch that Spark does again after a restart is skipped when the table
has it already.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater import kafka
from headwater import spark as sessions
from headwater.commit import Built, Committer
from headwater.definitions import Topic
from headwater.errors import ConfError, FlowError
from headwater.flows.context import Context, clock
from headwater.intent import Intent, IntentFile
from headwater.progress import Batch
from headwater.target import Target

# Payloads, offsets and times hardly repeat: looking for repetition and bounds in them costs a third.
_PARQUET = {
    "parquet.enable.dictionary#value": "false",
    "parquet.enable.dictionary#offset": "false",
    "parquet.enable.dictionary#timestamp": "false",
    "parquet.column.statistics.enabled#key": "false",
    "parquet.column.statistics.enabled#value": "false",
    "parquet.compression.codec.zstd.level": "1",
}


class SourceFlow:
    """The flow of one bronze table."""

    def __init__(self, context: Context, topic: Topic) -> None:
        self.name = topic.name
        self._context = context
        self._topic = topic
        self._folder = context.lake.flow_folder(topic.name)
        analysed = context.tables[topic.name]
        self._fingerprint = analysed.fingerprint
        self._place = context.lake.create(topic.name, analysed.stored, comment=topic.comment, properties={})
        self._table = Target(self._place)
        self._committer = Committer(self._table, IntentFile(self._folder))
        self._parallelism = topic.limits.parallelism or context.project.conf.parallelism
        self._spark: SparkSession = sessions.child(context.spark, parallelism=self._parallelism)
        self._checkpoint = self._folder / f"checkpoint-g{self._place.generation:04d}"
        self._busy = threading.Lock()
        self._query: StreamingQuery | None = None

    def run(self) -> None:
        """Read Kafka until the run ends; with `once`, until what is there now is read.

        Raises:
            FlowError: the checkpoint does not belong to the table.
            Exception: what made the query fail.
        """
        self._check_checkpoint()
        query = self._query = self._start()
        try:
            while not query.awaitTermination(1):
                if self._context.stop.is_set():
                    break
        finally:
            with self._busy:
                query.stop()

    def _start(self) -> StreamingQuery:
        conf = self._context.project.conf
        options: dict[str, str | int] = {
            **kafka.spark_options(conf, self._context.bootstrap),
            "subscribe": self._topic.topic,
            "maxOffsetsPerTrigger": self._topic.limits.max_rows_per_batch or conf.max_rows_per_batch,
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            **starting(self._context.start),
        }
        writer = (
            self._spark.readStream.format("kafka")
            .options(**options)
            .load()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(self._batch)
        )
        if self._context.once:
            return writer.trigger(availableNow=True).start()
        trigger = self._context.trigger or self._topic.limits.trigger or conf.trigger
        return writer.trigger(processingTime=trigger).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._context.stop.is_set():
                raise FlowError(f"{self.name}: stopped before batch {number}")
            began = time.monotonic()
            left = self._committer.unsealed()
            intent = Intent(
                flow=self.name,
                generation=self._place.generation,
                sequence=number,
                consumed=self._offsets(number),
                clock=left.clock if left is not None and left.sequence == number else clock(),
                fingerprint=self._fingerprint,
            )
            rows = 0

            def build(pinned: Intent) -> Built:
                nonlocal rows
                files = self._table.write(self._columns(frame, pinned.clock), number, _PARQUET)
                self._table.sweep(number, files)
                rows = self._table.rows(files)
                return Built({self.name: files}, newest=self._table.newest(files, "timestamp"))

            version = self._committer.carry_out(intent, build)
            self._context.heads.announce()
            seconds = time.monotonic() - began
            newest = self._table.flows[self.name]["newest"]
            self._context.board.batch(
                Batch(self.name, number, version, rows, rows, 0, seconds, time.time(), newest)
            )

    def _columns(self, frame: DataFrame, pinned_clock: str) -> DataFrame:
        return frame.select(
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "headers",
            F.lit(self._context.project.conf.cluster).alias("cluster"),
            F.lit(pinned_clock).cast("timestamp").alias("ingested_at"),
        ).coalesce(self._parallelism)

    def _offsets(self, number: int) -> dict[str, Any]:
        """The offsets after batch `number`, from Spark's log of offsets: {topic: {partition: offset}}."""
        lines = (self._checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1]))

    def _check_checkpoint(self) -> None:
        """A new checkpoint would number its batches from 0 again, and the table would take them as done."""
        written = self.name in self._table.flows
        committed = any((self._checkpoint / "commits").glob("[0-9]*"))
        if written and not (self._checkpoint / "metadata").is_file():
            raise FlowError(
                f"{self.name}: its checkpoint {self._checkpoint} is gone, so what it has read is not known; "
                "restore "
                f"that folder, or start the table anew: remove {self._place.path.parent} and run again"
            )
        if committed and not written:
            raise FlowError(
                f"{self.name}: the checkpoint {self._checkpoint} is of a table that is gone; remove it "
                "too, and run "
                "again to read the topic from the start"
            )


def milliseconds(start: str) -> int:
    """An ISO 8601 time as milliseconds since the epoch; one without a zone is UTC.

    Raises:
        ConfError: it is not such a time.
    """
    try:
        at = datetime.fromisoformat(start)
    except ValueError:
        raise ConfError(
            f"--start {start}: write earliest, latest or a time like 2026-01-31T06:00:00Z"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def starting(start: str) -> dict[str, str]:
    """Spark's option for where a source begins; a time is ISO 8601."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": start}
    return {
        "startingTimestamp": str(milliseconds(start)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
