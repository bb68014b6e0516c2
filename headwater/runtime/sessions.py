"""The one builder of Spark sessions."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headwater.errors import ConfError
from headwater.errors.causes import first_line
from headwater.runtime import jvm

# Settings that the engine's correctness or speed rests on; each is explained in docs/spark.md.
SETTINGS: dict[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.filterPushdown": "true",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.hadoop.parquet.summary.metadata.level": "none",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # Delta's parser loses parameters in Spark 4.1 and later: https://github.com/delta-io/delta/issues/7640
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.authenticate": "true",  # with a secret of the session's own
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential|jaas|sasl|ssl.*key",
}


# What declares Spark's own settings, each with the values that it takes.
_DECLARED = ("internal.config.package", "sql.internal.SQLConf", "sql.internal.StaticSQLConf")


class SessionConf(Protocol):
    """What of an environment a session is made from; see `headwater.project.conf.Conf`."""

    @property
    def memory(self) -> str: ...
    @property
    def cores(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def lake(self) -> Path: ...
    @property
    def spark(self) -> Mapping[str, Any]: ...
    @property
    def file(self) -> Path | None: ...


def start(conf: SessionConf, *, realtime_slots: int = 0) -> SparkSession:
    """The session of this process, started on first use (about 3 s).

    Args:
        conf: the environment.
        realtime_slots: task slots on top of `conf.cores`, which real-time flows hold while they run.

    Raises:
        ConfError: Spark refuses one of the environment's settings.
    """
    running = SparkContext._active_spark_context
    if running is not None:  # of this process, whichever thread began it
        return SparkSession(running)
    # PySpark writes each error of a query to stderr, as JSON with Java's stack, before it raises it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    jvm.size(conf.memory)
    gateway = jvm.gateway()
    check(conf)
    spark_conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    spark_conf.setMaster(f"local[{conf.cores + realtime_slots}]").setAppName("headwater")
    spark_conf.set("spark.sql.shuffle.partitions", str(conf.parallelism))
    spark_conf.set("spark.default.parallelism", str(conf.parallelism))
    spark_conf.set("spark.pyspark.python", sys.executable)
    spark_conf.set("spark.sql.warehouse.dir", str(conf.lake.parent / "spark-warehouse"))
    for key, value in {**SETTINGS, **conf.spark}.items():
        spark_conf.set(key, value)
    handler = signal.getsignal(signal.SIGINT)
    context = SparkContext(gateway=gateway, conf=spark_conf)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)  # Spark has set its own
    context.setLogLevel("OFF")
    return SparkSession(context)


def check(conf: SessionConf) -> None:
    """Check that Spark takes the environment's settings, which it reads where it first needs each.

    Raises:
        ConfError: one has a value that is none of its.
    """
    for name in _DECLARED if conf.spark else ():
        getattr(jvm.java_class(f"org.apache.spark.{name}$"), "MODULE$")
    for key, value in conf.spark.items():
        entry = jvm.java_class("org.apache.spark.internal.config.ConfigEntry").findEntry(key)
        try:
            _ = entry and entry.valueConverter().apply(str(value))
        except (Py4JJavaError, PySparkException) as e:
            raise ConfError(
                f"{conf.file or 'conf'}: key 'spark': {first_line(e)}",
                code="CONF_INVALID",
                file=conf.file,
            ) from None


def child(spark: SparkSession, *, parallelism: int) -> SparkSession:
    """A session for one flow: its own settings and temporary views, the same Spark beneath."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    session.conf.set("spark.sql.unionOutputPartitioning", "false")  # else a union of single tasks is one task
    return session
