"""One set of options in conf, two clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
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


def test_a_cluster_without_an_address() -> None:
    with raises_code("BOOTSTRAP_MISSING"):
        ensure_running(HERE, Conf(kafka={"security.protocol": "SSL"}))
