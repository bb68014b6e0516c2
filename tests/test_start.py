"""A source goes on where its table ends, or begins where a consumer group stands, which is left as it is."""

from __future__ import annotations

import json
import shutil
import threading
import time
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from drained import Drained
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.common import times
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.kafka.extent import extent
from headwater.connectors.produce import Topic
from headwater.errors import FlowError
from headwater.flows.reading import check, first
from headwater.project.load import Project, load_project
from headwater.run.supervisor import Options, Run
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.target import Target

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


def project_of(root: Path, client: dict[str, str], topic: str) -> Project:
    files = {"conf/local.yaml": json.dumps({"kafka": client}), "bronze/raw.py": BRONZE.format(topic)}
    for name, text in files.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    return load_project(root)


def taken(project: Project, start: str = "earliest", code: int = 0) -> list[int]:
    """What the bronze table holds when the source has been drained."""
    board = Board(notices=StringIO())
    assert Run(project, Options(once=True, start=start), board)() == code, board.flows
    return held(project)


def held(project: Project) -> list[int]:
    """What the bronze table holds; nothing before it is there."""
    if "bronze.raw" not in Lake(project.conf.lake).places():
        return []
    files = Target(Lake(project.conf.lake).place("bronze.raw")).files()
    return sorted(
        int(value) for file in files for (value,) in duckdb.sql(f"SELECT value FROM '{file}'").fetchall()
    )


def test_a_source_goes_on_from_what_its_table_has(
    client: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, sent = "start-again", list(range(12))
    create_topics(client, [Topic(topic, 3)])
    project = project_of(tmp_path, client, topic)
    lake = Lake(project.conf.lake)
    for partition in range(2):  # nothing yet in the third
        produce(client, topic, sent[6 * partition : 6 * partition + 6], partition)
    assert taken(project) == sent
    reach = failpoints.reach
    for turn, step in enumerate((None, "built", "committed")):
        new = [100 + 10 * turn + partition for partition in range(3)]
        for partition, value in enumerate(new):
            produce(client, topic, [value], partition)
        sent += new
        if step:

            def crash(at: str, flow: str, step: str | None = step) -> None:
                reach(at, flow)
                if at == step:
                    monkeypatch.setattr(failpoints, "reach", reach)
                    raise FlowError("a crash", code="STOPPED")

            monkeypatch.setattr(failpoints, "reach", crash)
            taken(project, code=1)
        assert taken(project, start="latest") == sent, step
    flows = log.flows(lake.place("bronze.raw").path)
    assert log.last(flows, "bronze.raw") >= 3  # the numbers of batches go on, too
    shutil.rmtree(lake.place("bronze.raw").path.parent)
    with pytest.raises(AssertionError, match="one; remove it too, and run again to read the topic"):
        taken(project)


def test_a_table_of_an_earlier_copy_loses_nothing(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    case = Drained(tmp_path, broker)
    case.send(1, 2)
    assert case.taken() == [1, 2]
    table = case.lake.place("bronze.raw").path
    shutil.copytree(table, case.root / "copied")
    case.send(3, 4)
    assert case.taken() == [1, 2, 3, 4]
    shutil.rmtree(table)
    shutil.copytree(case.root / "copied", table)
    case.send(5, 6)
    assert case.taken() == [1, 2, 3, 4, 5, 6]
    case.send(7)
    assert case.taken() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("start", ["latest", "earliest", "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
def test_where_a_source_begins_is_kept(client: dict[str, str], tmp_path: Path, start: str) -> None:
    """Also where there was nothing to be read from there on."""
    topic = f"start-{start}".replace(":", "-")
    create_topics(client, [Topic(topic, 3)])
    produce(client, topic, [1, 2], 0)
    project = project_of(tmp_path, client, topic)
    before = [] if start in ("latest", "2099-01-01T00:00:00Z") else [1, 2]
    assert taken(project, start) == before
    produce(client, topic, [3], 0)
    produce(client, topic, [4], 1)
    assert taken(project, "latest") == [*before, 3, 4]


def test_it_reads_what_the_group_has_not(client: dict[str, str], tmp_path: Path) -> None:
    topic, group = "start-taken", "former"
    create_topics(client, [Topic(topic, 3)])
    for partition in range(3):
        produce(client, topic, [10 * partition + at for at in range(4)], partition)
    stand(client, group, topic, 3, 4)  # and nothing of the third
    project = project_of(tmp_path, client, topic)
    assert taken(project, f"group:{group}") == [3, 20, 21, 22, 23]
    produce(client, topic, [99], 1)
    assert taken(project, "group:nobody") == [3, 20, 21, 22, 23, 99], "what has begun goes on from there"
    assert kafka.committed(client, group, topic) == {0: (3, 0, 4), 1: (4, 0, 5), 2: (None, 0, 4)}


def test_a_group_that_can_not_be_taken_over_is_refused(client: dict[str, str]) -> None:
    topic = "start-refused"
    create_topics(client, [Topic(topic, 2)])
    produce(client, topic, [1, 2], 0)
    with raises_code("GROUP_WITHOUT_OFFSETS"):
        first("group:nobody", client, topic, extent(client, topic))
    stand(client, "ahead", topic, 5)
    with raises_code(
        "GROUP_OFFSETS_EXPIRED",
        match="stands at offset 5 of partition 0 of start-refused, and Kafka has 0 to 2",
    ):
        first("group:ahead", client, topic, extent(client, topic))
    stand(client, "behind", topic, 0)
    admin = AdminClient(client)  # which has to live as long as what it is asked for
    (removed,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert removed.result().low_watermark == 1
    with raises_code(
        "GROUP_OFFSETS_EXPIRED", match="offset 0 of partition 0 of start-refused, and Kafka has 1 to"
    ):
        first("group:behind", client, topic, extent(client, topic))


@pytest.mark.parametrize("start", ["group:", "yesterday", ""])
def test_other_words_are_refused(start: str) -> None:
    with raises_code("START_INVALID", match="earliest, latest, a time like"):
        check(start)


@pytest.mark.parametrize("start", ["group:a:b", "earliest", "latest", "2026-01-31T06:00:00Z"])
def test_these_words_are_taken(start: str) -> None:
    check(start)


class SetBack(times.Clock):
    """A clock that was set back by an hour."""

    def now(self) -> datetime:
        return super().now() - timedelta(hours=1)


def test_what_comes_is_read_when_the_clock_is_set_back(
    client: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "start-clock"
    create_topics(client, [Topic(topic, 3)])
    project = project_of(tmp_path, client, topic)
    running = Run(project, Options(trigger="100 ms"), Board(notices=StringIO()))
    ran = threading.Thread(target=running)

    def comes(sent: list[int]) -> bool:
        deadline = time.monotonic() + 300
        while held(project) != sent and time.monotonic() < deadline:
            time.sleep(0.1)
        return held(project) == sent

    produce(client, topic, [1, 2, 3], 0)
    ran.start()
    try:
        assert comes([1, 2, 3])
        produce(client, topic, [4], 0)
        assert comes([1, 2, 3, 4])
        monkeypatch.setattr(times, "clock", SetBack())
        produce(client, topic, [5], 0)
        assert comes([1, 2, 3, 4, 5])
    finally:
        running.stop()
        ran.join(60)
    assert not ran.is_alive()
