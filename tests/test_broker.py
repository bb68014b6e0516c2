"""The embedded broker: a real one, with real kills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from raising import raises_code

from headwater.connectors.kafka import average_size, committed, tail
from headwater.connectors.kafka.broker import (
    EmbeddedBroker,
    Topic,
    create_topics,
    list_topics,
    process,
    state,
)
from headwater.connectors.kafka.extent import extent


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of this file, which may be killed."""
    embedded = EmbeddedBroker(tmp_path_factory.mktemp("own"), port=0, heap="256m")
    embedded.start()
    yield embedded
    embedded.stop()


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def receive(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() or b"" for message in messages]


def test_records_survive_a_kill_and_the_address_stays(own: EmbeddedBroker) -> None:
    bootstrap = own.start()
    create_topics({"bootstrap.servers": bootstrap}, [Topic("kept")])
    values = [b"%d" % i for i in range(1000)]
    send(bootstrap, "kept", values)
    before = own.status()
    assert before.running and before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    again = EmbeddedBroker(own.data, port=0, heap="256m")  # as the next command does
    assert again.start() == bootstrap
    after = again.status()
    assert after.running and after.pid != before.pid
    assert receive(bootstrap, "kept", 1000) == values


def test_start_is_idempotent(own: EmbeddedBroker) -> None:
    bootstrap = own.start()
    pid = own.status().pid
    assert EmbeddedBroker(own.data).start() == bootstrap
    assert own.status().pid == pid


def test_it_listens_on_loopback_only(own: EmbeddedBroker) -> None:
    own.start()
    known = state.read(own.data)
    assert known is not None
    for port in (known.port, known.controller_port):
        with socket.socket() as elsewhere:  # 127.0.0.2 is loopback too, but not where the broker is bound
            elsewhere.bind(("127.0.0.2", port))


def test_it_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headwater.connectors.kafka.broker import EmbeddedBroker; "
    )
    code += "print(EmbeddedBroker(Path(sys.argv[1]), heap='256m').start())"
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = Path(__file__).parent.parent
    said = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, start_new_session=True
    )
    embedded = EmbeddedBroker(tmp_path)
    try:
        status = embedded.status()
        assert status.running and status.pid is not None
        assert status.bootstrap == said.stdout.strip()
        assert os.getsid(status.pid) == status.pid
        assert list_topics({"bootstrap.servers": said.stdout.strip()}) == []
    finally:
        assert embedded.stop()
    assert not embedded.status().running
    assert not embedded.stop()


def test_a_moved_controller_port_is_followed(own: EmbeddedBroker) -> None:
    bootstrap = own.start()
    known = state.read(own.data)
    assert known is not None
    own.stop()
    with socket.create_server((state.LOOPBACK, known.controller_port)):
        assert own.start() == bootstrap
        create_topics({"bootstrap.servers": bootstrap}, [Topic("after-the-move")])
        moved = state.read(own.data)
    assert moved is not None and moved.controller_port != known.controller_port


def test_a_busy_port_is_named_with_its_key(tmp_path: Path) -> None:
    with socket.create_server((state.LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with raises_code("PORT_TAKEN", match=rf"port {port} is taken by another program.* broker\.port"):
            EmbeddedBroker(tmp_path, port=port).start()
    assert not EmbeddedBroker(tmp_path).status().running


def test_a_start_that_fails_quotes_the_log(tmp_path: Path) -> None:
    with raises_code(
        "BROKER_NOT_STARTED",
        file="broker.log",
        match=r"exit code 1: .*Invalid maximum heap size.*read .*broker\.log",
    ):
        EmbeddedBroker(tmp_path, heap="1x").start()


def test_only_its_own_process_is_ended(tmp_path: Path) -> None:
    """A process whose command line only resembles the broker's is left alone."""
    settings = tmp_path / "server.properties"
    other = tmp_path / "other" / "server.properties"
    command = [
        sys.executable,
        "-c",
        "import sys; print(flush=True); sys.stdin.read()",
        process.MAIN,
        str(other),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bystander:
        assert bystander.stdout is not None
        bystander.stdout.readline()
        assert process.find(other) == bystander.pid
        assert process.find(settings) is None
        assert not EmbeddedBroker(tmp_path).stop()
        assert bystander.poll() is None
        bystander.kill()


def test_topics_are_made_once_and_never_altered(broker: str) -> None:
    options = {"bootstrap.servers": broker}
    made = create_topics(options, [Topic("t-plain", 3), Topic("t-compacted", compacted=True)])
    assert [(each.created, each.partitions, each.differs) for each in made] == [(True, 3, ""), (True, 1, "")]
    (again,) = create_topics(options, [Topic("t-plain", 5)])
    assert not again.created
    assert again.differs == "topic t-plain has 3 partition(s), not 5"
    listed = {topic.name: topic.partitions for topic in list_topics(options)}
    assert listed["t-plain"] == 3 and listed["t-compacted"] == 1


@pytest.mark.parametrize("turns", [8, pytest.param(60, marks=pytest.mark.torture)])
def test_topics_are_listed_while_others_are_made(broker: str, turns: int) -> None:
    """A partition has no leader at first, for which its topic's makers wait; no other reader fails by it."""
    options = {"bootstrap.servers": broker}
    prefix = uuid4().hex[:8]
    made = [[Topic(f"{prefix}-{turn}-{each}", 2) for each in range(3)] for turn in range(turns)]
    with ThreadPoolExecutor(1) as maker:
        making = maker.submit(lambda: [create_topics(options, topics) for topics in made])
        while not making.done():
            list_topics(options)
        making.result()
    wanted = made[0][0].name
    assert [topic.name for topic in list_topics(options, {wanted, "absent"})] == [wanted]


@pytest.mark.parametrize("turns", [4, pytest.param(30, marks=pytest.mark.torture)])
def test_what_is_asked_of_a_topic_that_was_made_a_moment_ago_is_answered(broker: str, turns: int) -> None:
    """A broker may not lead a partition yet whose leader it is by the cluster's metadata."""
    client, prefix = {"bootstrap.servers": broker}, uuid4().hex[:8]
    asks: list[Callable[[str], object]] = [
        lambda topic: average_size(client, topic),
        lambda topic: committed(client, "group", topic),
        lambda topic: extent(client, topic),
        lambda topic: list(tail.records(client, topic, "earliest", follow=False)),
    ]
    for turn in range(turns):
        for at, ask in enumerate(asks):
            create_topics(client, [Topic(f"{prefix}-{turn}-{at}", 4)])
            ask(f"{prefix}-{turn}-{at}")


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.connectors.kafka.topics.TIMEOUT", 0.5)
    servers = f"{state.LOOPBACK}:{state.free_port()}"
    with raises_code("BROKER_UNAVAILABLE", match=f"{servers}: no answer from Kafka"):
        list_topics({"bootstrap.servers": servers})
