"""Options of processes that live for seconds: an import of this module sets them; a value from outside wins.

Half the work of a JVM that lives so long would be the optimising compiler's. Spark's launcher reads the
first two, the embedded broker the third. With one compiler Java keeps 48 MB for code; a session of many flows
fills that, and is interpreted from then on. Tables of a few files cost delta-rs most where it hands work from
thread to thread: it gets one.
"""

from __future__ import annotations

import os

for variable, options in {
    "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "TOKIO_WORKER_THREADS": "1",
}.items():
    os.environ.setdefault(variable, options)
