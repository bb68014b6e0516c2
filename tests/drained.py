"""A project with one topic, which tests drain in their own process."""

from __future__ import annotations

import json
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from commands import call
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.common.progress import Board
from headwater.common.wait import until
from headwater.connectors.kafka.broker import create_topics, list_topics
from headwater.connectors.kafka.tail import records
from headwater.connectors.produce import Topic
from headwater.project.load import Project, load_project
from headwater.run.supervisor import Options, Run
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.target import Target

RAW = "bronze.raw"
BRONZE = "import headwater as hw\nraw = hw.topic('{}', partitions={})\n"


class Drained:
    """A project with one topic of its own, which is drained in this process."""

    def __init__(self, root: Path, broker: str, partitions: int = 1) -> None:
        self.client: dict[str, Any] = {"bootstrap.servers": broker}
        self.topic, self.partitions, self.root = f"gaps-{uuid4().hex[:8]}", partitions, root
        create_topics(self.client, [Topic(self.topic, partitions)])
        for name, text in {
            "conf/local.yaml": json.dumps({"kafka": self.client}),
            "bronze/raw.py": BRONZE.format(self.topic, partitions),
        }.items():
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text)
        self.form = "%s"  # a record's value
        self.lake, self.said = Lake(self.project.conf.lake), ""

    @property
    def project(self) -> Project:
        return load_project(self.root)

    @property
    def folder(self) -> Path:
        """The flow's."""
        return self.lake.flow_folder(RAW)

    @property
    def flow(self) -> dict[str, Any]:
        """What the newest commit says."""
        return dict(log.flows(self.lake.place(RAW).path)[RAW])

    def send(self, *values: int, partition: int = 0) -> None:
        producer = Producer(self.client)
        for value in values:
            producer.produce(self.topic, (self.form % value).encode(), partition=partition)
        assert producer.flush(30) == 0

    def run(self, code: int = 0) -> None:
        """Drain the topic."""
        notices = StringIO()
        assert Run(self.project, Options(once=True), Board(notices=notices))() == code, notices.getvalue()
        self.said = notices.getvalue()

    def taken(self, code: int = 0) -> list[int]:
        """Drain the topic; what the table has then."""
        self.run(code)
        files = Target(self.lake.place(RAW)).files()
        return sorted(
            int(value) for file in files for (value,) in duckdb.sql(f"SELECT value FROM '{file}'").fetchall()
        )

    def values(self, topic: str) -> list[int]:
        """The numbers that the records of a topic have as `value`."""
        found = records(self.client, topic, "earliest", follow=False)
        return [json.loads(record.value() or b"")["value"] for record in found]

    def make_again(self, *values: int) -> None:
        """Delete the topic, and make another of its name with these records."""
        admin = AdminClient(self.client)
        admin.delete_topics([self.topic])[self.topic].result()
        assert until(lambda: not list_topics(self.client, {self.topic}), within=60)

        def made() -> bool:
            with suppress(KafkaException):
                create_topics(self.client, [Topic(self.topic, self.partitions)])
                return True
            return False

        assert until(made, within=60)
        self.send(*values)

    def expire(self, before: int, partition: int = 0) -> None:
        """Let the records before an offset go."""
        admin = AdminClient(self.client)
        (removed,) = admin.delete_records([TopicPartition(self.topic, partition, before)]).values()
        assert removed.result().low_watermark == before

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What a query says."""
        done = call(["query", sql, "--format", "json"], self.root)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def gaps(self) -> list[dict[str, Any]]:
        """The lines of the table of gaps."""
        return self.rows(f"FROM {RAW}__gaps ORDER BY batch, partition")
