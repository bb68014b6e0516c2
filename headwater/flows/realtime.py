"""Kafka → Kafka in milliseconds: stateless flows with Spark's real-time trigger, at least once.

No Python and no table stands in the way: the value is decoded inside Spark, and a malformed one is left
out (the table's own flow puts it into quarantine). Each input partition holds a task slot for good.
After a restart, what was sent since the last checkpoint is sent again.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.connectors import decode, kafka
from headwater.connectors.kafka.extent import extent
from headwater.errors import HeadwaterError, ProjectError
from headwater.errors.causes import describe, first_line, raised_at
from headwater.flows.checkpoint import Checkpoint
from headwater.flows.context import Context
from headwater.flows.gaps import Reached, missing
from headwater.flows.reading import first
from headwater.flows.reporting import Reporting
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Alert
from headwater.runtime import in_memory, sessions

CHECKPOINT_EVERY = "30 seconds"


def records(raw: DataFrame, alert: Alert) -> DataFrame:
    """The alert's Kafka records: key and value, from a bronze table's columns.

    Raises:
        ProjectError: the definition does not fit its source, or its key is no column of it.
    """
    where = alert.where
    try:
        rows = alert(decode.native(raw, alert.decode, where))
    except HeadwaterError:
        raise
    except Exception as e:  # a function of the user's may raise anything
        raise ProjectError(
            f"{raised_at(e, where)}: {first_line(e) if isinstance(e, AnalysisException) else describe(e)}",
            code="DEFINITION_FAILED",
            where=where,
            hint="mend the definition",
        ) from None
    if alert.key is not None and alert.key not in rows.columns:
        raise ProjectError(
            f"{where}: its key {alert.key} is no column of it",
            code="KEY_UNKNOWN",
            where=where,
            hint=f"known: {', '.join(rows.columns)}",
        )
    key = F.col(alert.key) if alert.key else F.lit(None)
    return rows.select(key.cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))


def check(spark: SparkSession, alert: Alert) -> None:
    """Analyse an alert on no rows.

    Raises:
        ProjectError: see `records`.
    """
    records(in_memory.empty(spark, BRONZE), alert)


class RealtimeFlow:
    """The flow of one alert."""

    def __init__(self, context: Context, alert: Alert) -> None:
        self.name = alert.name
        self._context = context
        self._alert = alert
        self._topic = context.project.topics[alert.source]
        self._spark = sessions.child(context.spark, parallelism=1)
        # It looks each second at all that Spark keeps of them, by default a hundred.
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10")
        folder = context.lake.flow_folder(alert.name) / "checkpoint"
        self._checkpoint = Checkpoint(folder, alert.name, self._topic.topic)
        self._client = kafka.client_options(context.project.conf, context.bootstrap)

    def run(self) -> None:
        """Run until the run ends; with `once`, until what is in the topic now is done.

        Raises:
            Exception: what made the query fail, but for a gap, behind which it goes on.
        """
        while True:
            query = self._start()
            try:
                return self._follow(query)
            except Exception:
                if not self._has_gap():
                    raise
            finally:
                query.stop()

    def _follow(self, query: StreamingQuery) -> None:
        """Report of a query until it ends, or the run does."""
        seen = -1
        while not query.awaitTermination(1):
            seen = self._report(query, seen)
            if self._context.stop.is_set():
                break
        self._report(query, seen)

    def _has_gap(self) -> bool:
        """Whether Kafka has no more what would be read next."""
        try:
            reached = self._checkpoint.reached()
            return reached is not None and bool(reached.gaps(extent(self._client, self._topic.topic)))
        except HeadwaterError:
            return False

    def _start(self) -> StreamingQuery:
        conf = self._context.project.conf
        options = kafka.spark_options(conf, self._context.bootstrap)
        source = kafka.source_options(conf, self._context.bootstrap)
        reader = self._spark.readStream.format("kafka").options(**source, **self._begin())
        raw = reader.option("subscribe", self._topic.topic).option("failOnDataLoss", "true").load()
        writer = (
            records(raw, self._alert)
            .writeStream.queryName(self.name)
            .format("kafka")
            .options(**options)
            .option("kafka.linger.ms", "0")
            .option("topic", self._alert.topic)
            .option("checkpointLocation", str(self._checkpoint.folder))
            .outputMode("update")
        )
        if self._context.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(realTime=CHECKPOINT_EVERY).start()  # type: ignore[call-overload, no-any-return]

    def _begin(self) -> dict[str, str]:
        """Spark's options for where it begins; none: its checkpoint says that.

        Where Kafka has no more what would be read next, it goes on behind that; a table stops there.
        """
        topic = self._topic.topic
        reached, now = self._checkpoint.reached(), extent(self._client, topic)
        gaps = reached.gaps(now) if reached else []
        if reached and not gaps and self._checkpoint.has_begun():
            self._checkpoint.keep(now.id)
            return {}
        if reached is None:
            reached = Reached(now.id, first(self._context.start, self._client, topic, now))
        elif gaps:
            why = missing(self._topic, gaps).message
            self._context.board.say(f"{self.name} goes on behind a gap: {why}")
            reached = reached.behind(now)
        self._checkpoint.begin(Reached(reached.id or now.id, reached.next))
        begins = {str(partition): offset for partition, offset in reached.begin(now).items()}
        return {"startingOffsets": json.dumps({topic: begins})}

    def _report(self, query: StreamingQuery, seen: int) -> int:
        """Say what each finished batch did; the number of the last one said."""
        for progress in query.recentProgress:
            batch = _plain(progress)
            if batch["batchId"] > seen:
                seen = int(batch["batchId"])
                if batch.get("numInputRows"):
                    Reporting(self._context, self.name).streamed(batch)
        return seen


def _plain(progress: Any) -> dict[str, Any]:
    return dict(json.loads(progress.json if isinstance(progress.json, str) else progress.json()))
