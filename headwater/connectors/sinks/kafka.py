"""A topic: rows as JSON, keyed by the table's keys, at least once.

A reader that keeps the last value of each key has the table, however often a batch is sent. A deleted row is
a record without a value, which a compacted topic forgets in time.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.common import arrow
from headwater.common.values import plain
from headwater.connectors.kafka.extent import topic_id
from headwater.connectors.kafka.lost import Lost
from headwater.connectors.kafka.topics import kafka_error
from headwater.connectors.sinks import (
    CHANGE,
    DELETE,
    Changes,
    Position,
    Published,
    Sink,
)
from headwater.errors import FlowError, HeadwaterError, SinkUnavailable
from headwater.project.conf import KafkaOptions

# What trying again never mends, and what a person can do. (`KafkaError.retriable` is of transactions alone.)
_MEND = {
    **dict.fromkeys(
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE),
        "raise max.message.bytes of the topic, and message.max.bytes under 'librdkafka' in the environment",
    ),
    **dict.fromkeys(
        (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),
        "make it, or run again, which does",
    ),
    **dict.fromkeys(
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        "let the user write to it",
    ),
    **dict.fromkeys(
        (
            *(KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP),
            *(KafkaError.INVALID_REQUIRED_ACKS, KafkaError.POLICY_VIOLATION, KafkaError._INVALID_ARG),
            *(KafkaError.UNSUPPORTED_COMPRESSION_TYPE, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ),
        "mend the topic's settings, or those under 'librdkafka' in the environment",
    ),
}


class KafkaTopic(Sink):
    """See `headwater.connectors.sinks.Sink`.

    Args:
        topic: where the rows go; it exists.
        client: the options of the producer.
        stop: set when the run ends, which then waits no longer for the broker.
    """

    def __init__(self, topic: str, client: KafkaOptions, stop: threading.Event) -> None:
        self._topic = topic
        self._stop = stop
        self._client = client
        self._errors: list[KafkaError] = []
        self._producer: Producer | None = None

    def open(self, table: Published) -> None:
        """Make the producer, which connects when it has something to send."""
        self._table = table
        own = {"enable.idempotence": True, "linger.ms": 5, "log_level": 2, "on_delivery": self._delivered}
        self._producer = Producer({**self._client, **own})
        self._lost = Lost(self._producer, self._client)

    def identity(self) -> str | None:
        """The topic's id; None where the broker gives none.

        Raises:
            BrokerError: the broker can't be reached, or has no such topic.
        """
        return topic_id(self._client, self._topic) or None

    def write(self, changes: Changes) -> None:
        """Send the rows, and wait until the broker has them.

        Raises:
            SinkUnavailable: it did not take them all in time, or the run ends; all come again.
            FlowError: the topic never takes one of them.
        """
        producer = self._producer
        assert producer is not None
        for at, piece in changes.pieces(self._table):
            self._send(producer, at, arrow.rows(piece))
        while producer.flush(0.5):
            self._raise_errors(producer)
        self._raise_errors(producer)

    def close(self) -> None:
        """Give up what is not sent."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _send(self, producer: Producer, at: Position, rows: list[dict[str, Any]]) -> None:
        said = {"table": self._table.name, "generation": str(at.generation), "version": str(at.version)}
        headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in said.items()]
        keys = self._table.keys
        for row in rows:
            gone = row.pop(CHANGE) == DELETE
            key = _json({name: row[name] for name in keys}) if keys else None
            while True:
                try:
                    producer.produce(self._topic, None if gone else _json(row), key, headers=headers)
                    producer.poll(0)
                    break
                except BufferError:
                    producer.poll(0.1)
                    self._raise_errors(producer)
                except KafkaException as e:
                    raise self._wrong(kafka_error(e)) from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _raise_errors(self, producer: Producer) -> None:
        if self._errors:
            raise self._wrong(self._errors[0])
        if self._lost(len(producer)):
            raise SinkUnavailable(
                f"{self._table.sink}: the client has lost its brokers, and is made anew",
                code="SINK_UNAVAILABLE",
                table=self._table.name,
            )
        if self._stop.is_set() and len(producer):
            raise SinkUnavailable(
                f"{self._table.sink}: the run ends before the broker has all rows",
                code="SINK_UNAVAILABLE",
                table=self._table.name,
            )

    def _wrong(self, error: KafkaError) -> HeadwaterError:
        if error.code() not in _MEND:
            return SinkUnavailable(
                f"{self._table.sink}: the broker did not take all rows: {error.str()}",
                code="SINK_UNAVAILABLE",
                table=self._table.name,
            )
        return FlowError(
            f"{self._table.sink}: the topic {self._topic} does not take a row of {self._table.name}: "
            f"{error.str()}",
            code="SINK_REJECTS_ROW",
            table=self._table.name,
            hint=_MEND[error.code()],
        )


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """A value as the other sinks have it, but for times, always in microseconds, and bytes, in hex."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return plain(value)
