"""Records of a topic for people's eyes, as kcat prints them; works on any cluster.

Nothing is written to the cluster: no group is joined and no offset committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headwater.common import times
from headwater.connectors.kafka.topics import TIMEOUT, Options, kafka_error
from headwater.errors import BrokerError

Start = Literal["earliest", "latest"] | int | datetime

TEXT = "%p:%o  %i  %k  %s  %h\n"
_TOKEN = re.compile(r"%(.)|\\([nrt\\])", flags=re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


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
        begin = _begin(consumer, topic, start)
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


def render(message: Message, form: str) -> str:
    """A record as `text`, `json`, or by kcat's format tokens, with a new line at its end where kcat has one.

    Tokens: %t topic, %p partition, %o offset, %k key, %s value, %K and %S their sizes in bytes (-1: null),
    %T timestamp in milliseconds, %i timestamp as ISO 8601 in UTC, %h headers, %% a percent sign.
    """
    fields = _fields(message)
    if form == "json":
        return json.dumps(fields, ensure_ascii=False) + "\n"
    tokens = _tokens(fields, message)
    return _TOKEN.sub(
        lambda found: tokens[found[1]] if found[1] else _ESCAPES[found[2]], TEXT if form == "text" else form
    )


def check_format(form: str) -> None:
    """Refuse a format with a token that is not one.

    Raises:
        ValueError: the message names the token.
    """
    if form not in ("text", "json"):
        for found in _TOKEN.finditer(form):
            if found[1] and found[1] not in "tpoksKSTih%":
                raise ValueError(f"unknown token %{found[1]}; known: %t %p %o %k %s %K %S %T %i %h %%")


def printable(data: bytes | None) -> str:
    """Bytes as text that can do a terminal no harm: what is not printable UTF-8 appears as an escape."""
    if data is None:
        return "NULL"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _begin(consumer: Consumer, topic: str, start: Start) -> list[TopicPartition]:
    there = consumer.list_topics(timeout=TIMEOUT).topics
    if topic not in there:
        known = ", ".join(sorted(name for name in there if not name.startswith("__"))) or "none"
        raise BrokerError(f"topic {topic} does not exist", code="UNKNOWN_TOPIC", hint=f"there are: {known}")
    partitions = sorted(there[topic].partitions)
    if isinstance(start, datetime):
        at = int(start.timestamp() * 1000)
        return consumer.offsets_for_times(
            [TopicPartition(topic, each, at) for each in partitions], timeout=TIMEOUT
        )
    return [TopicPartition(topic, each, _offset(consumer, topic, each, start)) for each in partitions]


def _offset(
    consumer: Consumer, topic: str, partition: int, start: Literal["earliest", "latest"] | int
) -> int:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT)
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


def _fields(message: Message) -> dict[str, object]:
    kind, at = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds") if known else None
    key, value = message.key(), message.value()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": when and when.replace("+00:00", "Z"),
        "key": None if key is None else printable(_bytes(key)),
        "value": None if value is None else printable(_bytes(value)),
        "headers": [
            [name, None if held is None else printable(_bytes(held))] for name, held in _headers(message)
        ],
    }


def _tokens(fields: Mapping[str, object], message: Message) -> dict[str, str]:
    key, value = message.key(), message.value()
    headers = (f"{printable(name.encode())}={printable(_bytes(held))}" for name, held in _headers(message))
    return {
        "t": str(fields["topic"]),
        "p": str(fields["partition"]),
        "o": str(fields["offset"]),
        "T": str(message.timestamp()[1]),
        "i": str(fields["timestamp"] or "-"),
        "k": printable(_bytes(key)),
        "s": printable(_bytes(value)),
        "K": str(-1 if key is None else len(key)),
        "S": str(-1 if value is None else len(value)),
        "h": ",".join(headers),
        "%": "%",
    }


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
