"""A topic's newest records, read by this process: few at a time, each as bronze has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.connectors.kafka.topics import QUIET, TIMEOUT, Options, unanswered
from headwater.project.bronze import BRONZE
from headwater.storage import stored

_COLUMNS = stored.schema(BRONZE)
_LAST = (2**63 - 1) // 1000  # milliseconds of the epoch that are microseconds, too: older brokers take any
_TOGETHER = 0.02  # seconds: what comes so soon after a record is read with it, and what waits is fetched
# A consumer at the end of a topic is told of a record when it comes, and fetches no more until that is
# taken. To fetch each record as it comes takes twice the broker's cores, and some of this process's.
_FETCH: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 500,
    "fetch.min.bytes": 1,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32 << 10,
    "group.id": "headwater-bronze",  # which Kafka's client asks for, and nothing joins
}


class Records:
    """A topic from some offsets on.

    Args:
        options: those of `kafka.consumer_options`.
        topic: its name.
        begin: {partition → the offset of the record that is read first}, of all partitions.
        cluster: what bronze calls the cluster.

    Attributes:
        next: {partition → the offset after the last record that was read}.
    """

    def __init__(self, options: Options, topic: str, begin: Mapping[int, int], cluster: str) -> None:
        self._consumer = Consumer({**QUIET, **_FETCH, **options})
        self._topic, self._cluster, self.next = topic, cluster, dict(begin)
        self._consumer.assign([TopicPartition(topic, number, at) for number, at in begin.items()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def partitions(self) -> int:
        """How many partitions the topic has now.

        Raises:
            BrokerError: the broker can't be reached.
        """
        try:
            return len(
                self._consumer.list_topics(self._topic, timeout=TIMEOUT).topics[self._topic].partitions
            )
        except KafkaException as e:
            raise unanswered(f"topic {self._topic}", e) from e

    def take(
        self, most: int, *, within: float, due: float, wait: Callable[[float], object] = time.sleep
    ) -> list[Message]:
        """Records that have come, of each partition in order; [] where none comes in time.

        Args:
            most: how many at most.
            within: how many seconds the first is waited for.
            due: those that come until then are read with it, in `time.monotonic`'s seconds.
            wait: waits for so many seconds, or less where the run is to end.

        Raises:
            KafkaException: the broker has no more what is to be read, or refuses.
        """
        found: list[Message] = []
        end = time.monotonic() + within
        while not found and (left := end - time.monotonic()) > 0:
            found = self._good(self._consumer.consume(1, left))
        if found and most > 1:
            wait(max(0.0, due - _TOGETHER - time.monotonic()))
            found += self._good(self._consumer.consume(most - 1, _TOGETHER))
        return found

    def rows(self, messages: list[Message], ingested_at: pa.Scalar) -> pa.Table:
        """Records as rows of bronze.

        Args:
            messages: as `take` gives them.
            ingested_at: when they were read (UTC).
        """
        count = len(messages)
        columns: dict[str, list[Any]] = {
            "key": [message.key() for message in messages],
            "value": [message.value() for message in messages],
            "topic": [self._topic] * count,
            "partition": [message.partition() for message in messages],
            "offset": [message.offset() for message in messages],
            "timestamp": [min(message.timestamp()[1], _LAST) * 1000 for message in messages],
            "headers": [_headers(message) for message in messages],
            "cluster": [self._cluster] * count,
            "ingested_at": [ingested_at.value] * count,
        }
        arrays = [pa.array(columns[field.name], field.type) for field in _COLUMNS]
        return pa.Table.from_arrays(arrays, schema=_COLUMNS)

    def _good(self, messages: list[Message]) -> list[Message]:
        """Those that are records; how far the topic has come is noted."""
        good = []
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            assert partition is not None and offset is not None
            if error is None:
                good.append(message)
                self.next[partition] = offset + 1
            else:  # behind what of a transaction is no record
                self.next[partition] = max(self.next[partition], offset)
        return good


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return [{"key": key, "value": value} for key, value in headers] if headers else None
