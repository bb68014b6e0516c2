"""A topic that Kafka compacts: what it has removed is no loss, and its keys end with the right rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from drained import RAW, Drained
from pyspark.sql import SparkSession
from test_final import seeded
from test_following import live

from headwater.common.wait import until
from headwater.connectors.kafka.extent import extent
from headwater.storage.target import Target

STATE = """
CREATE STREAMING TABLE state TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'k STRING, n INT',
  'headwater.timestamp' = 'sent_at', 'headwater.tombstones' = 'k')
FLOW AUTO CDC FROM STREAM bronze.raw KEYS (k) SEQUENCE BY sent_at COLUMNS * EXCEPT (sent_at)
"""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
}


class Compacted(Drained):
    """A project whose topic is compacted as soon as Kafka gets to it, and what its keys have at the end."""

    def __init__(self, root: Path, broker: str) -> None:
        super().__init__(root, broker)
        (root / "silver").mkdir()
        (root / "silver" / "state.sql").write_text(STATE)
        entries = [
            ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in COMPACTED.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        admin = AdminClient(self.client)
        admin.incremental_alter_configs([resource])[resource].result()
        self.want: dict[str, int] = {}
        self.at = 1_700_000_000_000

    def change(self, draw: random.Random, changes: int) -> None:
        """Change keys, or delete them."""
        producer = Producer(self.client)
        for number in range(changes):
            key, self.at = draw.choice("abcdef"), self.at + 1
            is_gone = draw.random() < 0.3
            value = None if is_gone else f'{{"k": "{key}", "n": {number}}}'
            producer.produce(self.topic, value, key, partition=0, timestamp=self.at)
            self.want.pop(key, None)
            if not is_gone:
                self.want[key] = number
        assert producer.flush(30) == 0

    def has_gone(self, offset: int = 0) -> bool:
        """Whether Kafka has removed the record of an offset; it leaves a segment alone that is the newest."""
        producer, self.at = Producer(self.client), self.at + 1000  # which ends the segment
        producer.produce(self.topic, None, "none of those", partition=0, timestamp=self.at)
        assert producer.flush(30) == 0
        consumer = Consumer({**self.client, "group.id": self.topic})
        consumer.assign([TopicPartition(self.topic, 0, offset)])
        (first,) = consumer.consume(1, 30)
        consumer.close()
        assert first.error() is None
        return first.offset() != offset

    def read(self) -> int:
        """From which offset on the topic is not read yet."""
        return int(self.flow["consumed"][self.topic]["0"])

    def state(self) -> dict[str, int]:
        """What the keys have."""
        table = Target(self.lake.place("silver.state"))
        return {row["k"]: row["n"] for row in table.held(table.columns).to_pylist()}


@pytest.mark.torture  # Kafka looks every 15 s whether there is something to compact
@pytest.mark.parametrize("way", ["by a query", "as it comes"])
def test_what_kafka_has_compacted_is_no_loss(
    tmp_path: Path, broker: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    draw, case = seeded(random.randrange(2**32)), Compacted(tmp_path, broker)
    case.change(draw, 200)
    assert until(case.has_gone, within=120)
    case.run()
    assert case.state() == case.want
    first = case.read()
    case.change(draw, 200)  # what comes next to bronze goes as well, before it is read
    assert until(lambda: case.has_gone(first), within=120)
    if way == "by a query":
        case.run()
    else:
        with live(case, monkeypatch) as run:
            run.follows()
            assert until(lambda: case.state() == case.want, within=120), run.notices.getvalue()
        assert run.begun["backlog"] == 0
    assert case.state() == case.want
    assert case.read() == extent(case.client, case.topic).end[0]
    assert f"{RAW}__gaps" not in case.lake.places()
