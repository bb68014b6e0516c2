"""A topic: rows as JSON, keyed by the table's keys, at least once.

A reader that keeps the last value of each key has the table, however often a batch is sent. A deleted row is
a record without a value, which a compacted topic forgets in time.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.conf import KafkaOptions
from headwater.sinks import CHANGE, DELETE, PIECE, Changes, Position, Published, Sink


class KafkaTopic(Sink):
    """See `headwater.sinks.Sink`.

    Args:
        topic: where the rows go; it exists.
        client: the options of the producer.
        stop: set when the run ends, which then waits no longer for the broker.

    Raises:
        KafkaException: in `write`: the broker did not take a row in time; it is sent again.
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

    def write(self, changes: Changes) -> None:
        """Send the rows, and wait until the broker has them."""
        producer = self._producer
        assert producer is not None
        for at, rows in changes.batches():
            for piece in rows.to_batches(max_chunksize=PIECE):
                self._send(producer, at, piece.to_pylist())
        while producer.flush(0.5) and not self._errors and not self._stop.is_set():
            pass
        if self._errors:
            error, self._errors = self._errors[0], []
            raise KafkaException(error)
        if len(producer):
            raise KafkaException(KafkaError(KafkaError._PURGE_QUEUE))

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

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What JSON has no word for: times as ISO 8601 in UTC, decimals and bytes as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")
