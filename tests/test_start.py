"""A source goes on where a consumer group stands, which is left as it is."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater import kafka
from headwater import project as projects
from headwater.broker import create_topics
from headwater.errors import ConfError
from headwater.flows.reading import check, starting
from headwater.produce import Topic
from headwater.progress import Board
from headwater.run import Options, Run
from headwater.storage.lake import Lake

BRONZE = "import headwater as hw\nraw = hw.topic('{}', partitions=3)\n"


def produce(client: dict[str, str], topic: str, values: list[int], partition: int) -> None:
    producer = Producer(client)
    for value in values:
        producer.produce(topic, str(value).encode(), partition=partition)
    assert producer.flush(30) == 0


def stand(client: dict[str, str], group: str, topic: str, *offsets: int) -> None:
    """Commit offsets of the first partitions as a group's."""
    consumer = Consumer({**client, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@pytest.fixture
def client(broker: str) -> dict[str, str]:
    return {"bootstrap.servers": broker}


def test_it_reads_what_the_group_has_not(client: dict[str, str], tmp_path: Path) -> None:
    topic, group = "start-taken", "former"
    create_topics(client, [Topic(topic, 3)])
    for partition in range(3):
        produce(client, topic, [10 * partition + at for at in range(4)], partition)
    stand(client, group, topic, 3, 4)  # and nothing of the third
    conf = json.dumps({"kafka": client})
    for name, text in {"conf/local.yaml": conf, "bronze/raw.py": BRONZE.format(topic)}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    project = projects.load(tmp_path)

    def taken(start: str) -> list[int]:
        board = Board(notices=StringIO())
        assert Run(project, Options(once=True, start=start), board)() == 0, board.flows
        place = Lake(project.conf.lake).places()["bronze.raw"]
        files = str(place.path / "*" / "*.parquet")
        return [int(value) for (value,) in duckdb.sql(f"SELECT value FROM '{files}' ORDER BY 1").fetchall()]

    assert sorted(taken(f"group:{group}")) == [3, 20, 21, 22, 23]
    produce(client, topic, [99], 1)
    assert sorted(taken("group:nobody")) == [3, 20, 21, 22, 23, 99], "what has begun goes on from there"
    assert kafka.committed(client, group, topic) == {0: (3, 0, 4), 1: (4, 0, 5), 2: (None, 0, 4)}


def test_a_group_that_can_not_be_taken_over_is_refused(client: dict[str, str], tmp_path: Path) -> None:
    topic = "start-refused"
    create_topics(client, [Topic(topic, 2)])
    produce(client, topic, [1, 2], 0)
    with pytest.raises(ConfError, match="group:nobody: the group has committed no offset of start-refused"):
        starting("group:nobody", client, topic, tmp_path)
    stand(client, "ahead", topic, 5)
    with pytest.raises(
        ConfError, match="stands at offset 5 of partition 0 of start-refused, and Kafka has 0 to 2"
    ):
        starting("group:ahead", client, topic, tmp_path)
    stand(client, "behind", topic, 0)
    admin = AdminClient(client)  # which has to live as long as what it is asked for
    (removed,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert removed.result().low_watermark == 1
    with pytest.raises(ConfError, match="offset 0 of partition 0 of start-refused, and Kafka has 1 to"):
        starting("group:behind", client, topic, tmp_path)


@pytest.mark.parametrize("start", ["group:", "yesterday", ""])
def test_other_words_are_refused(start: str) -> None:
    with pytest.raises(ConfError, match="earliest, latest, a time like"):
        check(start)


@pytest.mark.parametrize("start", ["group:a:b", "earliest", "latest", "2026-01-31T06:00:00Z"])
def test_these_words_are_taken(start: str) -> None:
    check(start)
