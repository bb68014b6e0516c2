"""The topics of a broker, embedded or not: make those missing, list what is there.

`options` are those of `headwater.connectors.kafka.client_options`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    OffsetSpec,
    TopicMetadata,
)

from headwater.common.wait import until
from headwater.errors import BrokerError, BrokerUnavailable
from headwater.errors.causes import known

Options = Mapping[str, str | int | bool]
TIMEOUT = 15.0  # seconds for one request
# What trying again does not mend. (`KafkaError.retriable` is of transactions alone.)
_FINAL = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,
    KafkaError._INVALID_ARG,
    KafkaError._SSL,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
# A partition without a leader: its topic was made a moment ago, or a broker went away.
_NO_LEADER = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
QUIET: Options = {"log_level": 0}  # what goes wrong is raised, not printed by the client too


@dataclass(frozen=True)
class Topic:
    """A topic as it is wanted.

    Attributes:
        name: of the topic.
        partitions: their number.
        compacted: keep the last record of each key instead of all records.
    """

    name: str
    partitions: int = 1
    compacted: bool = False


@dataclass(frozen=True)
class TopicOutcome:
    """What came of one wanted topic: `partitions` is the number that it has."""

    topic: Topic
    created: bool
    partitions: int

    @property
    def differs(self) -> str:
        """One line when the topic was there with another number of partitions, else empty."""
        if self.partitions == self.topic.partitions:
            return ""
        return f"topic {self.topic.name} has {self.partitions} partition(s), not {self.topic.partitions}"


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is: `end` is the sum of its partitions' end offsets."""

    name: str
    partitions: int
    end: int


def create_topics(options: Options, topics: Sequence[Topic]) -> list[TopicOutcome]:
    """Make the topics that are missing, wait until they can be used, and say what came of each.

    A topic that is there is never altered; compare `TopicOutcome.differs`.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    client = AdminClient({**QUIET, **options})
    there = metadata(client, options)
    missing = [topic for topic in topics if topic.name not in there]
    created = {topic.name for topic in missing if _create(client, topic)}
    if missing:
        there = _once_usable(client, options, {topic.name for topic in missing})
    return [TopicOutcome(topic, topic.name in created, len(there[topic.name].partitions)) for topic in topics]


def list_topics(options: Options, names: Collection[str] | None = None) -> list[TopicInfo]:
    """The topics, by name, without Kafka's own.

    Args:
        options: a client's.
        names: those to ask about, where they are there; None: all that the cluster has.

    Raises:
        BrokerError: the broker can't be reached.
    """
    client = AdminClient({**QUIET, **options})
    found = metadata(client, options)
    mine = [name for name in found if not is_kafkas_own(name) and (names is None or name in names)]
    there = {name: found[name] for name in mine}
    ends = dict.fromkeys(there, 0)
    for (name, _), end in _ends(client, there).items():
        ends[name] += end
    return [TopicInfo(name, len(there[name].partitions), ends[name]) for name in sorted(there)]


def end_offsets(options: Options, topic: str) -> dict[int, int]:
    """{partition → the offset of its next record} of a topic; empty where there is no such topic.

    Raises:
        BrokerError: the broker can't be reached.
    """
    client = AdminClient({**QUIET, **options})
    there = {name: found for name, found in metadata(client, options).items() if name == topic}
    return {partition: end for (_, partition), end in _ends(client, there).items()}


def offsets(
    client: AdminClient,
    topics: dict[str, TopicMetadata],
    which: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[tuple[str, int], int]:
    """{(topic, partition) → offset}; a partition that has no leader yet is asked again until it has one.

    Args:
        client: who asks.
        topics: what is asked about.
        which: of their offsets.
        isolation: whether the latest is before the first open transaction, or behind all records.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    found: dict[tuple[str, int], int] = {}
    asked = {TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions}
    leaderless: dict[TopicPartition, KafkaException] = {}

    def answered() -> bool:
        leaderless.clear()
        answers = client.list_offsets(
            dict.fromkeys(asked, which),
            isolation_level=isolation,
            request_timeout=TIMEOUT,
        )
        for partition, answer in answers.items():
            try:
                result: Any = answer.result()
            except KafkaException as e:
                if kafka_error(e).code() not in _NO_LEADER:
                    raise unanswered(f"topic {partition.topic}", e) from e
                leaderless[partition] = e
            else:
                found[partition.topic, partition.partition] = int(result.offset)
        asked.intersection_update(leaderless)
        return not leaderless

    if asked and not until(answered, within=TIMEOUT):
        partition, why = next(iter(leaderless.items()))
        raise unanswered(f"topic {partition.topic}", why) from why
    return found


def metadata(client: AdminClient, options: Options) -> dict[str, TopicMetadata]:
    """What the cluster says of its topics, by name.

    Raises:
        BrokerError: the broker can't be reached.
    """
    try:
        return dict(client.list_topics(timeout=TIMEOUT).topics)
    except KafkaException as e:
        raise unanswered(str(options.get("bootstrap.servers")), e) from e


def is_kafkas_own(topic: str) -> bool:
    """Whether Kafka keeps something of its own in a topic."""
    return topic.startswith("__")


def kafka_error(exception: KafkaException) -> KafkaError:
    """What Kafka said; the client library puts it into the exception's only argument."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def unanswered(what: str, exception: KafkaException) -> BrokerError:
    """The error to raise where Kafka gave none of what it was asked for.

    Args:
        what: it was asked about, or who.
        exception: what the client raised.
    """
    error = kafka_error(exception)
    said = f"{what}: no answer from Kafka: {error.str()}"
    found = known(exception)
    if isinstance(found, BrokerError):
        return type(found)(said, code=found.code, hint=found.hint)
    if error.code() in _FINAL:
        return BrokerError(said, code="BROKER_REFUSES", hint="is it running?")
    return BrokerUnavailable(said, code="BROKER_UNAVAILABLE", hint="is it running?")


def _create(client: AdminClient, topic: Topic) -> bool:
    """Whether this call made the topic; another process may have been faster."""
    config = {"cleanup.policy": "compact"} if topic.compacted else {}
    wanted = NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=-1, config=config)
    try:
        client.create_topics([wanted], request_timeout=TIMEOUT)[topic.name].result()
    except KafkaException as e:
        error = kafka_error(e)
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise BrokerError(
            f"topic {topic.name} could not be made: {error.str()}",
            code="TOPIC_NOT_CREATED",
            hint="make it, or change it",
        ) from e
    return True


def _once_usable(client: AdminClient, options: Options, names: set[str]) -> dict[str, TopicMetadata]:
    """The topics, once each of the named has a leader for every partition."""
    there: dict[str, TopicMetadata] = {}

    def usable() -> bool:
        there.update(metadata(client, options))
        known = [there[name] for name in names if name in there]
        return len(known) == len(names) and all(p.leader >= 0 for t in known for p in t.partitions.values())

    if not until(usable, within=TIMEOUT):
        raise BrokerError(
            f"topics {', '.join(sorted(names))}: no leader within {TIMEOUT:.0f} s",
            code="TOPIC_WITHOUT_LEADER",
            hint="look at the broker",
        )
    return there


def _ends(client: AdminClient, topics: dict[str, TopicMetadata]) -> dict[tuple[str, int], int]:
    return offsets(client, topics, OffsetSpec.latest())
