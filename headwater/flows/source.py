"""Kafka → bronze: a Structured Streaming query whose batches append one Delta commit each.

The commit carries the batch's number and the offsets after it, and is the checkpoint: each query begins where
the table's newest commit ends, and each of its batches is the table's next one. So no batch is taken for
another, whatever was restored, copied or removed. Spark's own checkpoint lasts as long as its query; only
before the table's first commit it is gone on with, as it says where the source began.
"""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.common import times
from headwater.common.durations import MICROSECOND, interval
from headwater.common.report import Account
from headwater.connectors import kafka
from headwater.errors import FlowError, HeadwaterError
from headwater.errors.causes import describe
from headwater.flows import gaps
from headwater.flows.backfill import Backfill
from headwater.flows.context import Context
from headwater.flows.gaps import Watched
from headwater.flows.reading import starting
from headwater.flows.reporting import Reporting
from headwater.flows.rows import FEW, FEW_BYTES
from headwater.planner.changes import accept
from headwater.project.definitions import Format, Topic
from headwater.runtime import sessions
from headwater.storage import mailbox
from headwater.storage.commit import Built
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.mailbox import Answer, Request
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


class SourceFlow:
    """The flow of one bronze table."""

    def __init__(self, context: Context, topic: Topic) -> None:
        self.name = topic.name
        self._context = context
        self._topic = topic
        self._folder = context.lake.flow_folder(topic.name)
        analysed = context.tables[topic.name]
        self._fingerprint = analysed.fingerprint
        accept(context.project, context.lake, topic.name, analysed)
        self._place = context.lake.create(topic.name, analysed.stored, comment=topic.comment, properties={})
        self._table = Target.shared(self._place)
        self.committer = gaps.committer(context.lake, self._table)
        self._client = kafka.client_options(context.project.conf, context.bootstrap)
        self._watched = Watched(self._table, topic, self._client)
        self._parallelism = topic.limits.parallelism or context.project.conf.parallelism
        self._spark: SparkSession = sessions.child(context.spark, parallelism=self._parallelism)
        self._checkpoint = self._folder / "checkpoint"
        self._backfill = Backfill(context.project, context.lake, topic, self._table)
        self._busy = threading.Lock()
        self._failure: Exception | None = None
        self._row_bytes = 0.0  # of the records last read, on average
        self._bound = 0  # records of one batch

    def run(self) -> None:
        """Read Kafka until the run ends; with `once`, until what is there now is read.

        Raises:
            FlowError: what the flow has kept is of a table that is gone.
            Exception: what made the query fail.
        """
        self._check_life()
        gaps.recover(self.committer)
        self._backfill.recover()
        while not self._run_query() and not self._context.stop.is_set():
            pass

    def _run_query(self) -> bool:
        """Run the query until it has ended; False: it is to begin anew.

        So it is where its batches have grown past their bound in bytes, or where the clock was set back:
        Spark would wait until it says again when the next batch is due.
        """
        self._failure, watch, anew = None, times.Watch(), False
        query = self._start()
        try:
            while not query.awaitTermination(1):
                self._context.check(self.name)
                anew = self._outgrown() or watch.set_back()
                if self._context.stop.is_set() or anew:
                    break
                for request, answer in mailbox.take(self._folder):
                    mailbox.reply(answer, self._answer(request))
        except Exception as e:
            raise self._watched.why(self._failure or e) from e
        finally:
            with self._busy:
                query.stop()
        return not (anew or self._outgrown())

    def _answer(self, request: Request) -> Answer:
        """Do what another process asks for, in turns with the query's batches."""
        context = self._context
        try:
            done = self._backfill(
                request.pattern,
                cast(Format, request.format),
                turn=self._busy,
                stopped=context.stop.is_set,
                announce=context.heads.announce,
            )
            return {"done": asdict(done)}
        except HeadwaterError as e:
            return mailbox.refusal(e)
        except Exception as e:
            file, why = self._topic.file, f"{self._topic.file}: {self.name}: {describe(e)}"
            return mailbox.refusal(FlowError(why, code="REQUEST_FAILED", table=self.name, file=file))

    def _outgrown(self) -> bool:
        return self._bound > 2 * self._admitted()

    def _admitted(self) -> int:
        """How many records a batch may have: the bound in rows, or fewer if they are large."""
        conf = self._context.project.conf
        rows = self._topic.limits.max_rows_per_batch or conf.max_rows_per_batch
        return max(1, min(rows, int(conf.max_bytes_per_batch / max(self._row_bytes, 1.0))))

    def _start(self) -> StreamingQuery:
        conf = self._context.project.conf
        if not self._row_bytes:
            self._row_bytes = kafka.average_size(self._client, self._topic.topic)
        self._bound = self._admitted()
        options: dict[str, str | int] = {
            **kafka.FETCH,
            **kafka.source_options(conf, self._context.bootstrap),
            "subscribe": self._topic.topic,
            "maxOffsetsPerTrigger": self._bound,
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            **self._starting(),
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
        return writer.trigger(processingTime=f"{interval(trigger) // MICROSECOND} microseconds").start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._context.stop.is_set():
                raise FlowError(
                    f"{self.name}: stopped before batch {number}",
                    code="STOPPED",
                    table=self.name,
                    file=self._topic.file,
                )
            try:
                self._commit(frame, number)
            except Exception as e:
                self._failure = e  # as it is: Spark would wrap it
                raise

    def _commit(self, frame: DataFrame, number: int) -> None:
        consumed, mine = self._offsets(number), self._table.flows.get(self.name, {})
        if (mine.get("consumed"), mine.get("topics", {})) == (consumed, self._watched.ids()):
            return  # Spark plans the first batch of a query even where there is nothing to read
        reporting, sequence = Reporting(self._context, self.name), self._table.last(self.name) + 1
        left = self.committer.unsealed()
        intent = Intent(
            flow=self.name,
            generation=self._place.generation,
            sequence=sequence,
            consumed=consumed,
            clock=left.clock if left is not None and left.sequence == sequence else self._context.clock(),
            fingerprint=self._fingerprint,
            topics=self._watched.ids(),
        )

        def build(pinned: Intent) -> Built:
            records = self._columns(frame, pinned.clock)
            if self._are_few(pinned.consumed):
                files = self._table.write(records.coalesce(1).toArrow(), pinned.batch)
            else:
                files = self._table.write(records.coalesce(self._parallelism), pinned.batch, _PARQUET)
            rows = self._table.rows(files)
            size = self._table.payload(files, "value")
            if rows:
                self._row_bytes = size / rows
            self._watched.check()
            account = Account(rows_in=rows, rows_out=rows, rows_read=rows, bytes_read=size)
            return Built({self.name: files}, newest=self._table.newest(files, "timestamp"), account=account)

        done = self.committer.carry_out(intent, build)
        reporting.committed(intent, done, self._table.flows[self.name]["newest"])

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
        )

    def _are_few(self, after: dict[str, Any]) -> bool:
        """Whether a batch's records are few, by its offsets (see `flows.rows`)."""
        mine = self._table.flows.get(self.name)
        if mine is None:
            return False
        records = sum(
            end - mine["consumed"].get(topic, {}).get(partition, 0)
            for topic, partitions in after.items()
            for partition, end in partitions.items()
        )
        return bool(records <= FEW and records * self._row_bytes <= FEW_BYTES)

    def _offsets(self, number: int) -> dict[str, Any]:
        """The offsets after batch `number`, from Spark's log of offsets: {topic: {partition: offset}}."""
        lines = (self._checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1]))

    def _check_life(self) -> None:
        """Check that what the flow has kept is of the table that is there.

        Raises:
            FlowError: it is of one that is gone.
        """
        kept = IntentFile(self._folder).read()
        begun = (kept is not None and kept.sealed) or any((self._checkpoint / "commits").glob("[0-9]*"))
        if begun and self.name not in self._table.flows:
            raise FlowError(
                f"{self.name}: {self._folder} is of a table that is gone",
                code="CHECKPOINT_ORPHANED",
                table=self.name,
                file=self._folder,
                hint="remove it too, and run again to read the topic from the start",
            )

    def _starting(self) -> dict[str, str]:
        """Spark's options for where a query begins: where the table's newest commit ends.

        Raises:
            FlowError: Kafka has no more what comes there.
        """
        reached, now = self._watched.begin()
        if self.name in self._table.flows:
            self._forget_checkpoint()
        if reached is None:
            return starting(self._context.start, self._client, self._topic.topic, self._checkpoint)
        begin = {str(partition): reached.next.get(partition, 0) for partition in now.end}
        return {"startingOffsets": json.dumps({self._topic.topic: begin})}

    def _forget_checkpoint(self) -> None:
        """Remove what the last query kept, whole or not at all."""
        left = self._folder / "checkpoint.left"
        shutil.rmtree(left, ignore_errors=True)
        with suppress(FileNotFoundError):
            self._checkpoint.rename(left)
        shutil.rmtree(left, ignore_errors=True)
