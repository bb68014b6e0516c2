"""`python -m headwater.run.record_classes` makes the archives: set-up asks for that."""

from __future__ import annotations

import json
import sys
import tempfile
from io import StringIO
from pathlib import Path

from confluent_kafka import Producer

from headwater import query
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import Topic, create_topics
from headwater.errors import HeadwaterError
from headwater.project.load import load_project
from headwater.run.supervisor import Options, Run
from headwater.runtime import class_archive, jvm

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


def make() -> Path:
    """Make both archives, in place of earlier ones (about a minute); the folder that they are in.

    Raises:
        HeadwaterError: the little project could not be run.
    """
    folder = Path(sys.prefix)
    with class_archive.recording():
        with tempfile.TemporaryDirectory() as root:
            _run(Path(root))
        jvm.end()
        for program in class_archive.PROGRAMS:
            if not class_archive.made(program).is_file():
                raise HeadwaterError(
                    f"{class_archive.file(program)}: Java wrote no archive of its classes",
                    code="CLASS_ARCHIVE_NOT_MADE",
                    file=class_archive.file(program),
                )
            for earlier in folder.glob(f"headwater-{program}-*.jsa"):
                earlier.unlink()
            class_archive.made(program).rename(class_archive.file(program))
    return folder


def _run(root: Path) -> None:
    """Run a project from Kafka to gold, in small batches and large ones, and query it."""
    for name, text in _PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    project = load_project(root)
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
                raise HeadwaterError(
                    f"a first run has failed: {[f.error for f in board.flows.values()]}",
                    code="CLASS_ARCHIVE_NOT_MADE",
                )
        query.run("SELECT count(*) FROM silver.readings", project=root, engine="spark")
    finally:
        broker.stop()


if __name__ == "__main__":
    try:
        print(make())
    except HeadwaterError as e:
        sys.exit(f"headwater: {e} [{e.code}]")
