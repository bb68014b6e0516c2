"""Java's archives of loaded classes: with them Spark and the broker start in about two thirds of the time.

Set-up makes two, one for Spark and one for the broker, in the Python environment: it runs a project of one
record per table and lets each JVM write down which classes it had loaded when it ends. A JVM takes an
archive only if its Java and class path are those that it was made with, and does without it otherwise.

https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Literal

from headwater import java
from headwater.errors import HeadwaterError
from headwater.jars import lock

Program = Literal["spark", "broker"]
PROGRAMS: tuple[Program, ...] = ("spark", "broker")
_QUIET = "-Xlog:cds*=off"  # an archive that does not fit is no event

_recording = False

_PROJECT = {
    "conf/local.yaml": "{kafka: embedded, broker: {port: 0}}",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw', partitions=2)\n",
    "silver/readings.py": '''import headwater as hw
from pyspark.sql import functions as F


@hw.table(source="bronze.raw", decode=hw.json("host STRING, usage DOUBLE, at BIGINT"))
def readings(raw):
    """One row per reading."""
    return raw.withColumn("event_time", F.timestamp_millis("at"))
''',
    "quality/silver.readings.json": json.dumps(
        {
            "name": "silver.readings",
            "expectations": [
                {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "host"}},
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "usage", "min_value": 0, "max_value": 100},
                },
            ],
        }
    ),
    "gold/by_host.sql": """CREATE STREAMING TABLE gold.by_host AS
SELECT window.start AS window_start, host, avg(usage) AS usage, count(*) AS readings
FROM STREAM silver.readings WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
GROUP BY window(event_time, '5 minutes'), host""",
}


def options(program: Program) -> list[str]:
    """The options with which a JVM uses its archive, where there is one."""
    if _recording:
        return [f"-XX:ArchiveClassesAtExit={_made(program)}", _QUIET]
    archive = file(program)
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.is_file() else []


@cache
def file(program: Program) -> Path:
    """Where the archive of a program is, or would be: its name says for which Java and which libraries."""
    home = java.home()
    release = (home / "release").read_text(encoding="utf-8")
    made_for = [str(home), release, version("pyspark"), lock.lock_file().read_text(encoding="utf-8")]
    key = hashlib.sha256("\n".join(made_for).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"headwater-{program}-{key}.jsa"


def make() -> Path:
    """Make both archives, in place of earlier ones (about half a minute); the folder that they are in.

    Raises:
        HeadwaterError: the little project could not be run.
    """
    global _recording
    from headwater import jvm

    _recording = True
    try:
        with tempfile.TemporaryDirectory() as folder:
            _run(Path(folder))
        jvm.end()
        for program in PROGRAMS:
            if not _made(program).is_file():
                raise HeadwaterError(f"{file(program)}: Java wrote no archive of its classes")
            for earlier in Path(sys.prefix).glob(f"headwater-{program}-*.jsa"):
                earlier.unlink()
            _made(program).rename(file(program))
    finally:
        for program in PROGRAMS:
            _made(program).unlink(missing_ok=True)
        _recording = False
    return Path(sys.prefix)


def _made(program: Program) -> Path:
    return file(program).with_suffix(f".{os.getpid()}")


def _run(root: Path) -> None:
    """Run a project from Kafka to gold, in small batches and large ones, and query it."""
    from confluent_kafka import Producer

    from headwater import kafka, query
    from headwater import project as projects
    from headwater.broker import Topic, create_topics
    from headwater.progress import Board
    from headwater.run import Options, Run

    for name, text in _PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    project = projects.load(root)
    broker = kafka.embedded_broker(root, project.conf)
    try:
        client = {**kafka.client_options(project.conf, broker.start()), "log_level": 0}
        create_topics(client, [Topic("raw", 2)])
        for count in (10, 20_000):
            producer = Producer(client)
            for at in range(count):
                record = {"host": f"h{at % 7}", "usage": at % 101.0, "at": 1_700_000_000_000 + at}
                producer.produce("raw", json.dumps(record).encode(), partition=at % 2)
            producer.flush(60)
            board = Board(notices=StringIO())
            if Run(project, Options(once=True), board)():
                raise HeadwaterError(f"a first run has failed: {[f.error for f in board.flows.values()]}")
        query.run("SELECT count(*) FROM silver.readings", project=root, engine="spark")
    finally:
        broker.stop()


if __name__ == "__main__":  # set-up asks this way
    from headwater import classes  # the module that the JVMs ask for options, not this run of its file

    try:
        print(classes.make())
    except HeadwaterError as e:
        sys.exit(f"headwater: {e}")
