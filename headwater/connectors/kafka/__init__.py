"""Kafka as the rest of the engine sees it: an address, and the options of the two clients.

The environment says its options once, in the words of Kafka's Java client, which Spark uses. The
Python client (librdkafka) shares many of the words; what it calls differently stands under `librdkafka:`.
"""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.common.wait import until
from headwater.connectors.kafka.broker import EmbeddedBroker
from headwater.connectors.kafka.extent import bounds
from headwater.connectors.kafka.topics import TIMEOUT, kafka_error, unanswered
from headwater.errors import ConfError
from headwater.project.conf import Conf, KafkaOptions
from headwater.project.paths import engine_folder

# Options with the same name and meaning in both clients.
SHARED = {
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
}
# How Spark's batches read (an environment's options go on top). A consumer asks the broker for more while
# its task still reads, and whatever it asks next waits behind that: at the end of a topic, half a second
# with Kafka's default. And with each poll Spark asks for the topic's ends: larger polls, fewer questions.
FETCH = {
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
}
# Records of a transaction that was aborted, or is still open, are read by nobody, unless an environment says
# `isolation.level: read_uncommitted`. (That is the Java client's default.)
_ISOLATION = "isolation.level"
_READ_COMMITTED = "read_committed"
# What the Java client alone knows, and one of which librdkafka needs in its stead.
COUNTERPARTS = {
    "sasl.jaas.config": ("sasl.username", "sasl.oauthbearer.config", "sasl.kerberos.keytab"),
    "ssl.truststore.location": ("ssl.ca.location", "ssl.ca.pem"),
    "ssl.keystore.location": ("ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"),
}
# A group's offsets have no coordinator for a moment: the first group of a cluster is asked about, or a broker
# went away. (librdkafka finds the new one by itself, but asks it nothing: issue 5586 of its repository.)
_NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)


def client_options(conf: Conf, bootstrap: str) -> KafkaOptions:
    """The options for confluent_kafka's producer, consumer and admin client.

    Args:
        conf: the environment.
        bootstrap: what `ensure_running` returned.

    Raises:
        ConfError: the Java client has credentials that librdkafka is not told of.
    """
    java = _java(conf)
    for option, counterparts in COUNTERPARTS.items():
        if option in java and not any(each in conf.librdkafka for each in counterparts):
            raise ConfError(
                f"conf: 'kafka' has {option}, which only Kafka's Java client knows",
                code="KAFKA_OPTION_OF_JAVA",
                hint=f"say the same under 'librdkafka' ({' or '.join(counterparts)})",
            )
    shared = {name: value for name, value in java.items() if name in SHARED}
    return {**shared, **conf.librdkafka, "bootstrap.servers": bootstrap}


def consumer_options(conf: Conf, bootstrap: str) -> KafkaOptions:
    """The same for a consumer of records.

    Raises:
        ConfError: see `client_options`.
    """
    return {_ISOLATION: _java(conf).get(_ISOLATION, _READ_COMMITTED), **client_options(conf, bootstrap)}


def source_options(conf: Conf, bootstrap: str) -> dict[str, str]:
    """The options for Spark's Kafka source."""
    return {f"kafka.{_ISOLATION}": _READ_COMMITTED, **spark_options(conf, bootstrap)}


def spark_options(conf: Conf, bootstrap: str) -> dict[str, str]:
    """The options for Spark's Kafka source and sink: each of the Java client's with `kafka.` before it."""
    return {
        f"kafka.{name}": _text(value)
        for name, value in {**_java(conf), "bootstrap.servers": bootstrap}.items()
    }


def ensure_running(project: Path, conf: Conf) -> str:
    """The bootstrap servers; the embedded broker is started where the environment asks for it.

    Raises:
        BrokerError: the embedded broker can't be started.
        ConfError: a real cluster's options don't say where it is.
    """
    if conf.kafka == "embedded":
        return embedded_broker(project, conf).start()
    servers = conf.kafka.get("bootstrap.servers")
    if not isinstance(servers, str) or not servers:
        raise ConfError(
            "conf: 'kafka' has no bootstrap.servers",
            code="BOOTSTRAP_MISSING",
            hint="add host:port, or say `kafka: embedded`",
        )
    _warn_if_readable_by_others(servers, str(conf.kafka.get("security.protocol", "PLAINTEXT")))
    return servers


def average_size(client: KafkaOptions, topic: str, sample: int = 200) -> float:
    """The bytes of a record's value, on average over the last few of a topic; 0.0 where it has none.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    there = {number: ends for number, ends in bounds(client, topic).items() if ends[0] < ends[1]}
    last = max(1, sample // max(1, len(there)))
    places = [TopicPartition(topic, number, max(low, high - last)) for number, (low, high) in there.items()]
    if not places:
        return 0.0
    consumer = Consumer({**client, "group.id": "headwater-size", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign(places)
        records = sum(there[place.partition][1] - place.offset for place in places)
        sizes = [len(message.value() or b"") for message in consumer.consume(records, timeout=2)]
        return sum(sizes) / len(sizes) if sizes else 0.0
    except KafkaException as e:
        raise unanswered(f"topic {topic}", e) from e
    finally:
        consumer.close()


def committed(client: KafkaOptions, group: str, topic: str) -> dict[int, tuple[int | None, int, int]]:
    """How far a consumer group has read a topic; the group is only asked about, not joined.

    Returns:
        {partition → (offset of the next record that the group would read, or None where it committed none,
        the first offset there is, the one after the last)}

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    there = bounds(client, topic)
    asked = [TopicPartition(topic, number) for number in there]
    read: list[TopicPartition] = []
    moving: list[KafkaException] = []

    def answered() -> bool:
        read.clear()
        try:
            read.extend(consumer.committed(asked, timeout=TIMEOUT))
            for error in filter(None, (place.error for place in read)):
                raise KafkaException(error)
        except KafkaException as e:
            if kafka_error(e).code() not in _NO_COORDINATOR:
                raise unanswered(f"topic {topic}", e) from e
            moving[:] = [e]
            return False
        return True

    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    try:
        if not until(answered, within=TIMEOUT):
            raise unanswered(f"topic {topic}", moving[0]) from moving[0]
    finally:
        consumer.close()
    return {
        place.partition: (place.offset if place.offset >= 0 else None, *there[place.partition])
        for place in read
    }


def embedded_broker(project: Path, conf: Conf) -> EmbeddedBroker:
    """The project's own broker, in `.headwater/kafka`."""
    return EmbeddedBroker(engine_folder(project) / "kafka", conf.broker.port, conf.broker.heap)


def _java(conf: Conf) -> KafkaOptions:
    """What the environment says in the words of the Java client."""
    return {} if conf.kafka == "embedded" else conf.kafka


def _warn_if_readable_by_others(servers: str, protocol: str) -> None:
    away = [server for server in servers.split(",") if not _is_loopback(server.strip().rpartition(":")[0])]
    if away and protocol.upper() in ("PLAINTEXT", "SASL_PLAINTEXT"):
        print(
            f"headwater: warning: {protocol.upper()} to {away[0].strip()}: records go over the network "
            "unencrypted; set security.protocol to SSL or SASL_SSL",
            file=sys.stderr,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name: where it leads is not ours to ask


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
