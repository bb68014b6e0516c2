"""One set of options in conf, two clients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from raising import raises_code

from headwater.connectors import kafka
from headwater.connectors.kafka import client_options, ensure_running, spark_options, topics
from headwater.errors import BrokerError
from headwater.project.conf import Conf
from headwater.run.faults import transient

HERE = Path("unused")


def test_embedded_needs_only_the_address() -> None:
    assert client_options(Conf(), "127.0.0.1:1") == {"bootstrap.servers": "127.0.0.1:1"}
    assert spark_options(Conf(), "127.0.0.1:1") == {"kafka.bootstrap.servers": "127.0.0.1:1"}


def test_each_client_gets_its_own_words() -> None:
    java = {
        "bootstrap.servers": "k:9093",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "x",
        "a.flag": True,
    }
    conf = Conf(kafka=java, librdkafka={"sasl.username": "u", "sasl.password": "p"})
    assert client_options(conf, "k:9093") == {
        "bootstrap.servers": "k:9093",
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    assert spark_options(conf, "k:9093") == {
        "kafka.bootstrap.servers": "k:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "x",
        "kafka.a.flag": "true",
    }


def test_credentials_that_only_java_knows_are_refused() -> None:
    conf = Conf(kafka={"bootstrap.servers": "k:9093", "sasl.jaas.config": "secret"})
    with raises_code("KAFKA_OPTION_OF_JAVA", match=r"sasl.jaas.config.*'librdkafka' \(sasl.username") as e:
        client_options(conf, "k:9093")
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(
    ("servers", "protocol", "warned"),
    [
        ("127.0.0.1:9092,[::1]:9092,localhost:9092", "PLAINTEXT", False),
        ("127.0.0.1:9092,kafka.example:9092", "PLAINTEXT", True),
        ("192.0.2.7:9092", "SASL_PLAINTEXT", True),
        ("kafka.example:9093", "SASL_SSL", False),
    ],
)
def test_plain_text_over_the_network_is_warned_of(
    servers: str, protocol: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = Conf(kafka={"bootstrap.servers": servers, "security.protocol": protocol})
    assert ensure_running(HERE, conf) == servers
    assert ("unencrypted" in capsys.readouterr().err) is warned


def test_what_a_flow_asks_of_a_broker_that_is_away_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT", 0.5)
    monkeypatch.setattr(topics, "TIMEOUT", 0.5)
    client: kafka.KafkaOptions = {"bootstrap.servers": "127.0.0.1:1"}
    for ask in (
        lambda: kafka.average_size(client, "any"),
        lambda: kafka.committed(client, "group", "any"),
        lambda: topics.end_offsets(client, "any"),
    ):
        with raises_code(
            "BROKER_UNAVAILABLE", match=r"(any|127\.0\.0\.1:1): no answer from Kafka: "
        ) as found:
            ask()
        assert transient(found.value)
    refused = topics.unanswered(
        "topic any", KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    )
    assert isinstance(refused, BrokerError) and not transient(refused)


@pytest.mark.parametrize("within", ["the answer", "a partition's"])
def test_a_group_whose_coordinator_moves_is_asked_about_again(
    broker: str, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker says in the moment is given here; all else is asked of the real one."""
    client: kafka.KafkaOptions = {"bootstrap.servers": broker}
    topic, said = uuid4().hex, [KafkaError(KafkaError.NOT_COORDINATOR)] * 2
    topics.create_topics(client, [topics.Topic(topic, 2)])

    class Moving(Consumer):
        def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[Any]:
            if not said:
                return super().committed(partitions, timeout=timeout)
            if within == "the answer":
                raise KafkaException(said.pop())
            error = said.pop()
            return [SimpleNamespace(partition=p.partition, offset=-1001, error=error) for p in partitions]

    monkeypatch.setattr(kafka, "Consumer", Moving)
    assert kafka.committed(client, "group", topic) == {0: (None, 0, 0), 1: (None, 0, 0)} and not said
    said[:] = [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with raises_code("BROKER_REFUSES"):
        kafka.committed(client, "group", topic)
    said[:] = [KafkaError(KafkaError.NOT_COORDINATOR)] * 10_000
    monkeypatch.setattr(kafka, "TIMEOUT", 0.2)
    with raises_code("BROKER_UNAVAILABLE"):
        kafka.committed(client, "group", topic)


def test_a_cluster_without_an_address() -> None:
    with raises_code("BOOTSTRAP_MISSING"):
        ensure_running(HERE, Conf(kafka={"security.protocol": "SSL"}))
