"""Records of a topic for people's eyes; works on any cluster.

Nothing is written to the cluster: no group is joined and no offset committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from headwater.common import times
from headwater.connectors.kafka.extent import bounds, since
from headwater.connectors.kafka.topics import QUIET, Options, is_kafkas_own, kafka_error, metadata
from headwater.errors import BrokerError

Start = Literal["earliest", "latest"] | int | datetime


def parse_start(text: str) -> Start:
    """`earliest`, `latest`, an offset (negative: from the end), or an ISO 8601 time (UTC unless it says).

    Raises:
        ValueError: it is none of them.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return times.parse(text)


def records(options: Options, topic: str, start: Start, *, follow: bool) -> Iterator[Message]:
    """The topic's records from `start`, in order within each partition; ends at the end unless `follow`.

    An offset counts in each partition, and is taken as the nearest one that the partition has.

    Raises:
        BrokerError: the topic does not exist, or Kafka can't be read.
    """
    reader: dict[str, str | int | bool] = {"group.id": "headwater-tail", "enable.auto.commit": False}
    consumer = Consumer(
        {**options, **reader, "enable.partition.eof": not follow, "auto.offset.reset": "error"}
    )
    try:
        begin = _begin(options, topic, start)
        consumer.assign(begin)
        yield from _until_end(consumer, {each.partition for each in begin}, topic)
    except KafkaException as e:
        servers = options.get("bootstrap.servers")
        raise BrokerError(
            f"topic {topic} on {servers}: {kafka_error(e).str()}",
            code="TOPIC_NOT_READABLE",
            hint="is Kafka running?",
        ) from e
    finally:
        consumer.close()


def line(message: Message) -> str:
    """A record for people: partition:offset, timestamp (ISO 8601 in UTC), key, value and headers."""
    record = fields(message)
    at, key, value = record["timestamp"] or "-", record["key"], record["value"]
    headers = ",".join(f"{printable(name)}={_or_null(held)}" for name, held in record["headers"])
    return f"{record['partition']}:{record['offset']}  {at}  {_or_null(key)}  {_or_null(value)}  {headers}"


def fields(message: Message) -> dict[str, Any]:
    """A record as JSON has it; what is not text appears as in `printable`."""
    kind, at = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    when = times.of_microseconds(at * 1000).isoformat(timespec="milliseconds") if known else None
    headers = message.headers() or []
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": when and when.replace("+00:00", "Z"),
        "key": printable(message.key()),
        "value": printable(message.value()),
        "headers": [
            [name, printable(held)]
            for name, held in (headers.items() if isinstance(headers, dict) else headers)
        ],
    }


def printable(data: str | bytes | None) -> str | None:
    """Text that can do a terminal no harm: what is not printable UTF-8 appears as an escape."""
    if data is None:
        return None
    text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _begin(options: Options, topic: str, start: Start) -> list[TopicPartition]:
    client = AdminClient({**QUIET, **options})
    there = metadata(client, options)
    if topic not in there:
        known = ", ".join(sorted(name for name in there if not is_kafkas_own(name))) or "none"
        raise BrokerError(f"topic {topic} does not exist", code="UNKNOWN_TOPIC", hint=f"there are: {known}")
    if isinstance(start, datetime):
        found = since(options, topic, int(start.timestamp() * 1000))
    else:
        found = {number: _offset(*ends, start) for number, ends in bounds(options, topic).items()}
    return [TopicPartition(topic, number, at) for number, at in sorted(found.items())]


def _offset(low: int, high: int, start: Literal["earliest", "latest"] | int) -> int:
    if start == "earliest":
        return low
    if start == "latest":
        return high
    return min(max(start if start >= 0 else high + start, low), high)


def _until_end(consumer: Consumer, reading: set[int], topic: str) -> Iterator[Message]:
    while reading:
        message = consumer.poll(0.5)  # seconds; a keyboard interrupt is noticed between two
        if message is None:
            continue
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            reading.discard(message.partition() or 0)
        else:
            raise BrokerError(
                f"topic {topic}: {error.str()}",
                code="TOPIC_NOT_READABLE",
                hint="look at the broker and its log",
            )


def _or_null(text: str | None) -> str:
    return "NULL" if text is None else text
