"""The one JVM of this process: parsing needs no more than it, Spark runs in it.

It ends when this process does: Spark's gateway reads its standard input, which closes with us.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.conf import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import StructType

from headwater.errors.causes import first_line
from headwater.runtime import cache, class_archive, jars, java
from headwater.runtime.java_names import JavaNames

_LOCK = threading.Lock()
_gateway: JavaGateway | None = None
_copier: threading.Thread | None = None  # of what it says
_memory = "2g"
_more: tuple[str, ...] = ()

OPTIONS = (
    "-Duser.timezone=UTC",
    "-XX:+UseParallelGC",
    # New objects have a fifth of the heap, not a third: they fill it as soon as collections take more than a
    # hundredth of the time, and for good. Java so takes 1.1 GB for a backlog of 3 M records, not 1.4.
    "-XX:NewRatio=4",
    # Spark makes classes all the time: to look for unused ones takes 0.2 s, from 21 MB of them on.
    "-XX:MetaspaceSize=256m",
    # What is called seldom is not worth the optimising compiler, which took a fifth of the CPU of a backlog
    # of three million records, and takes a tenth where it waits four times as long as by default.
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
    f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
)

# Of a JVM that lives for a minute or two: the optimising compiler would take half of a small machine.
# With one compiler Java keeps 48 MB for code, which a session of many flows fills.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")


def size(memory: str) -> None:
    """Set the heap (`2g`) of the JVM, which must not run yet for it to matter."""
    global _memory
    _memory = memory


def gateway() -> JavaGateway:
    """The gateway to the JVM, which the first call starts (about 1.5 s).

    Raises:
        SetupError: no Java 17 or 21, or the JVM libraries can't be had.
    """
    global _gateway, _copier
    with _LOCK:
        if _gateway is None:
            os.environ["JAVA_HOME"] = str(java.home())
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            conf = SparkConf(loadDefaults=False)
            conf.set("spark.driver.memory", _memory)
            options = [*OPTIONS, *_more, *class_archive.options("spark")]
            conf.set(
                "spark.driver.extraJavaOptions", " ".join(map(shlex.quote, options))
            )  # as a shell has it
            conf.set("spark.driver.extraClassPath", os.pathsep.join(map(str, jars.spark_jars())))
            conf.set("spark.ui.showConsoleProgress", "false")
            # Its standard output too: the JVM warns there, and this process's own carries results.
            said, says = os.pipe()
            # In a thread, which no signal interrupts: a JVM that is left while it starts stays for ever.
            with ThreadPoolExecutor(1) as launcher:
                _gateway = launcher.submit(launch_gateway, conf, {"stdout": says, "stderr": says}).result()
            os.close(says)
            _gateway.jvm = JavaNames(_gateway.jvm)
            _copier = threading.Thread(target=_copy, args=(os.fdopen(said, "rb"),), name="jvm", daemon=True)
            _copier.start()
        return _gateway


def begin(memory: str, *options: str) -> None:
    """Start the JVM in a thread, for the `gateway` that will be asked for; what is wrong, that one raises.

    Args:
        memory: its heap (`2g`).
        options: Java's, beside those that every JVM gets.
    """
    global _more

    def start() -> None:
        with suppress(Exception):
            gateway()

    size(memory)
    _more = options
    thread = threading.Thread(target=start, name="jvm start", daemon=True)
    thread.start()
    atexit.register(thread.join)  # a JVM that is left while it starts stays for ever


def end() -> None:
    """End the JVM and wait until it has; the next `gateway` starts another."""
    global _gateway
    from pyspark import SparkContext

    with _LOCK:
        if _gateway is None:
            return
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        _gateway.shutdown()
        _gateway.proc.stdin.close()
        _gateway.proc.wait()
        assert _copier is not None
        _copier.join(10)
        _gateway = SparkContext._gateway = SparkContext._jvm = None


def _copy(said: IO[bytes]) -> None:
    """Write what the JVM says to standard error, but for its note on a module that Spark asks for."""
    with said:
        for line in said:
            if b"Using incubator modules" not in line:
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()


def pid() -> int:
    """The JVM's process id."""
    return int(gateway().jvm.java.lang.ProcessHandle.current().pid())


def java_class(name: str) -> Any:
    """A class by its full name, for its static methods; py4j asks the JVM for each part of a name."""
    return getattr(gateway().jvm, name)


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    return map(sequence.apply, range(sequence.length()))


def sequence(items: Iterable[Any]) -> Any:
    """A Scala Seq of these elements."""
    return gateway().jvm.PythonUtils.toSeq(list(items))


def mapping(scala_map: Any) -> dict[str, str]:
    """A Scala map of strings as a dict."""
    return {str(pair._1()): str(pair._2()) for pair in items(scala_map.toSeq())}


def ddl(columns: str) -> StructType:
    """The columns of a piece of Spark DDL (`hostname STRING, usage DOUBLE`).

    Raises:
        ValueError: it is not DDL.
    """
    return StructType.fromJson(json.loads(_columns(columns)))


@cache.kept
def _columns(text: str) -> str:
    """Columns of DDL, as Spark writes them in JSON."""
    try:
        return str(gateway().jvm.org.apache.spark.sql.types.StructType.fromDDL(text).json())
    except (Py4JJavaError, PySparkException) as e:
        raise ValueError(first_line(e)) from None
