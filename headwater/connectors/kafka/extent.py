"""From where to where a topic goes, which one it is, and for how long it keeps records.

`options` are those of `headwater.connectors.kafka.client_options`.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headwater.common.wait import until
from headwater.connectors.kafka.topics import (
    QUIET,
    TIMEOUT,
    Options,
    kafka_error,
    metadata,
    offsets,
    unanswered,
)
from headwater.errors import BrokerError

_NO_ID = str(Uuid(0, 0))


@dataclass(frozen=True)
class Extent:
    """From where to where a topic goes.

    Attributes:
        id: Kafka's, which no other topic has had, not one of the same name either; "": the broker gives none.
        first: {partition → the offset of the oldest record that it has}.
        end: {partition → the offset of its next record}.
    """

    id: str
    first: dict[int, int]
    end: dict[int, int]


@dataclass(frozen=True)
class Kept:
    """What a topic still has, and for how long.

    Attributes:
        first: {partition → the offset of the oldest record that it has}.
        policy: its `cleanup.policy`: `delete`, `compact` or `compact,delete`.
        milliseconds: its `retention.ms`; -1: for ever.
    """

    first: dict[int, int]
    policy: str
    milliseconds: int


def topic_id(options: Options, topic: str, client: AdminClient | None = None) -> str:
    """Kafka's id of a topic; see `Extent`.

    Args:
        options: the client's.
        topic: its name.
        client: one that is connected by now, which takes 2 ms in place of 20.

    Raises:
        BrokerError: the broker can't be reached, or has no such topic.
    """
    client, found = client or admin(options), ""

    def known() -> bool:
        nonlocal found
        asked = client.describe_topics(
            TopicCollection([topic]),
            request_timeout=TIMEOUT,
        )
        try:
            found = str(asked[topic].result().topic_id)
        except KafkaException as e:
            if kafka_error(e).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False  # for good, or for a moment after it was made
            raise unanswered(f"topic {topic}", e) from e
        return True

    if not until(known, within=TIMEOUT):
        raise BrokerError(
            f"there is no topic {topic} any more",
            code="UNKNOWN_TOPIC",
            hint="run again, which makes it; what it had is gone",
        )
    return "" if found == _NO_ID else found


def admin(options: Options) -> AdminClient:
    """A client that is kept for some questions."""
    return AdminClient({**QUIET, **options})


def extent(options: Options, topic: str) -> Extent:
    """From where to where a topic goes.

    Raises:
        BrokerError: the broker can't be reached, or has no such topic.
    """
    found, there = topic_id(options, topic), bounds(options, topic)
    first = {partition: low for partition, (low, _) in there.items()}
    return Extent(found, first, {partition: high for partition, (_, high) in there.items()})


def bounds(options: Options, topic: str) -> dict[int, tuple[int, int]]:
    """{partition → the offset of the oldest record that it has, and of its next one}; empty: no such topic.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    client = AdminClient({**QUIET, **options})
    there = {name: found for name, found in metadata(client, options).items() if name == topic}
    low, high = offsets(client, there, OffsetSpec.earliest()), offsets(client, there, OffsetSpec.latest())
    return {number: (first, high[topic, number]) for (_, number), first in low.items()}


def readable(options: Options, topic: str) -> dict[int, int]:
    """{partition → up to where a consumer reads it now}: to its end, or where a transaction is open still.

    Args:
        options: those of `kafka.consumer_options`.
        topic: its name.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    all_of_it = options.get("isolation.level") == "read_uncommitted"
    isolation = IsolationLevel.READ_UNCOMMITTED if all_of_it else IsolationLevel.READ_COMMITTED
    client = AdminClient({**QUIET, **options})
    there = {name: found for name, found in metadata(client, options).items() if name == topic}
    found = offsets(client, there, OffsetSpec.latest(), isolation)
    return {number: end for (_, number), end in found.items()}


def since(options: Options, topic: str, milliseconds: int) -> dict[int, int]:
    """{partition → the offset of the first record of that time or later, or behind the last one}.

    Args:
        options: the client's.
        topic: its name.
        milliseconds: since the epoch, by Kafka's timestamps.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    client = AdminClient({**QUIET, **options})
    there = {name: found for name, found in metadata(client, options).items() if name == topic}
    ends = offsets(client, there, OffsetSpec.latest())
    found = offsets(client, there, OffsetSpec.for_timestamp(milliseconds))
    return {number: at if at >= 0 else ends[name, number] for (name, number), at in found.items()}


def kept(options: Options, topic: str) -> Kept | None:
    """What a topic still has; None where there is no such topic.

    Raises:
        BrokerError: the broker can't be reached, or refuses.
    """
    client = AdminClient({**QUIET, **options})
    there = {name: found for name, found in metadata(client, options).items() if name == topic}
    if not there:
        return None
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        settings = client.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
    except KafkaException as e:
        raise BrokerError(
            f"topic {topic}: its settings can't be read: {kafka_error(e).str()}", code="TOPIC_NOT_READABLE"
        ) from e
    first = {partition: at for (_, partition), at in offsets(client, there, OffsetSpec.earliest()).items()}
    return Kept(first, settings["cleanup.policy"].value, int(settings["retention.ms"].value))
