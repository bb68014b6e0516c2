"""Whether a producer has lost its brokers for good."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headwater.connectors.kafka.extent import admin
from headwater.connectors.kafka.topics import Options

QUIET = 10.0  # seconds in which the broker takes nothing, after which it is looked whether the client is lost
FOUND = 5.0  # seconds in which a client that has brokers finds one again


class Lost:
    """Tells a producer that has lost its brokers from one whose broker is away, or slow.

    One that hears of no broker, as from one that is being stopped, asks none again:
    https://github.com/confluentinc/librdkafka/issues/5301

    Args:
        producer: the producer.
        options: those of its client.
    """

    def __init__(self, producer: Producer, options: Options) -> None:
        self._producer, self._options = producer, options
        self._done, self._since = -1, 0.0

    def __call__(self, done: int) -> bool:
        """Whether the producer finds no broker where a new client does; it is asked after `QUIET` alone.

        Args:
            done: a number that changes as the broker takes records.
        """
        if done != self._done or not len(self._producer):
            self._done, self._since = done, time.monotonic()
        elif time.monotonic() - self._since > QUIET:
            if not _finds_brokers(self._producer) and _finds_brokers(admin(self._options)):
                return True
            self._since = time.monotonic()
        return False


def _finds_brokers(client: AdminClient | Producer) -> bool:
    try:
        return bool(client.list_topics(timeout=FOUND).brokers)
    except KafkaException:
        return False
