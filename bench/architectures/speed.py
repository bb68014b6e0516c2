"""System 1's speed layer, beside the batch: windows of what comes now, by Structured Streaming.

    python -m bench.architectures.speed FOLDER BOOTSTRAP

It begins with the window before the present one, and knows nothing of what came before.
"""

from __future__ import annotations

import sys
import time

from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from bench.architectures.batch import readings, windows
from headwater.connectors import kafka
from headwater.project.conf import Conf
from headwater.runtime import sessions

WINDOW = 300.0


def main(folder: str, bootstrap: str) -> None:
    """Run until killed."""
    spark = sessions.start(Conf())
    table = f"{folder}/speed"
    begin = int((time.time() // WINDOW - 1) * WINDOW * 1000)
    topic = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).options(**kafka.FETCH)
    )
    topic = topic.option("subscribe", "iot-data-input").option("startingTimestamp", begin)
    records = topic.option("startingOffsetsByTimestampStrategy", "latest").load()

    def merge(rows: DataFrame, batch: int) -> None:
        if not DeltaTable.isDeltaTable(spark, table):
            rows.write.format("delta").save(table)
            return
        same = "t.window_start = s.window_start AND t.hostname = s.hostname AND t.cpu = s.cpu"
        merged = DeltaTable.forPath(spark, table).alias("t").merge(rows.alias("s"), same)
        merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    live = windows(readings(records).withWatermark("event_time", "10 seconds"))
    query = live.writeStream.outputMode("update").trigger(processingTime="500 milliseconds")
    query.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(merge).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
