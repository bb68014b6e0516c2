"""A topic: rows as JSON, keyed; what passes is tried again, and what does not stops with what to do."""

from __future__ import annotations

import socket
import threading
from uuid import uuid4

import pytest
from batches import TABLE, changes, published
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.errors import FlowError, SinkUnavailable
from headwater.run import transient
from headwater.sinks.kafka import KafkaTopic
from headwater.tail import records

ROW = ("upsert", "a", 1, 1.0)


def made(broker: str, **config: str) -> str:
    """A topic of its own."""
    name = f"sink-{uuid4().hex[:8]}"
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([topic])[name].result()
    return name


def opened(servers: str, topic: str, stop: threading.Event | None = None, **options: str | int) -> KafkaTopic:
    client = {"bootstrap.servers": servers, "topic.metadata.propagation.max.ms": 500, **options}
    sink = KafkaTopic(topic, client, stop or threading.Event())
    sink.open(published())
    return sink


def nowhere() -> str:
    """Where no broker is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_a_broker_that_is_away_for_long_is_unavailable_and_is_sent_to_when_it_is_back(broker: str) -> None:
    topic = made(broker)
    sink = opened(nowhere(), topic, **{"message.timeout.ms": 500})
    with pytest.raises(SinkUnavailable, match=r"^gold\.usage->here: .*timed out") as e:
        sink.write(changes([ROW]))
    assert transient(e.value)
    sink.close()
    again = opened(broker, topic)
    again.write(changes([ROW]))
    again.close()
    (record,) = records({"bootstrap.servers": broker}, topic, "earliest", follow=False)
    assert record.key() == b'{"host":"a","cpu":1}'


@pytest.mark.parametrize("most", [1_000, 10])  # rows that wait to be sent
def test_a_run_that_ends_waits_no_longer_for_a_broker_that_is_away(most: int) -> None:
    stop = threading.Event()
    sink = opened(nowhere(), "any", stop, **{"queue.buffering.max.messages": most})
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(SinkUnavailable):
        sink.write(changes([ROW] * 100))
    sink.close()


@pytest.mark.parametrize(
    ("config", "size", "says"),
    [
        ({}, 2_000_000, "max.message.bytes"),  # the client refuses it
        ({"max.message.bytes": "1000"}, 5_000, "max.message.bytes"),  # the broker does
        (None, 1, "run again"),
    ],
)
def test_what_a_topic_never_takes_is_an_error_that_says_what_to_do(
    broker: str, config: dict[str, str] | None, size: int, says: str
) -> None:
    topic = "sink-unknown" if config is None else made(broker, **config)
    sink = opened(broker, topic)
    with pytest.raises(FlowError, match=r"^gold\.usage->here: ") as e:
        sink.write(changes([ROW, ("upsert", "secret" * size, 1, 1.0)]))
    assert topic in str(e.value) and TABLE in str(e.value) and says in str(e.value)
    assert "secret" not in str(e.value)
    sink.close()
