"""The sender: each record of a generator delivered once, in order, paced or as fast as they go."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.connectors.kafka.lost import Lost
from headwater.connectors.produce.records import Ledger, Record
from headwater.errors import BrokerError, ProjectError

SLICE_SECONDS = 0.01  # a paced run sends what is due this often
SLICE_RECORDS = 2_000  # at most this many between two looks at the clock, the stop and the broker's reports
LONGEST_PAUSE = 0.05  # seconds; a stop is noticed within it

# Idempotent: each record once, in order within its partition, also over a broker's restart.
PRODUCER: Mapping[str, str | int | bool] = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "message.timeout.ms": 120_000,  # a record not delivered in two minutes is an error
    "queue.buffering.max.messages": 200_000,
    "log_level": 2,  # what goes wrong for good is raised; the rest mends itself
    "delivery.report.only.error": True,  # a delivered record costs no call into Python
}


@dataclass(frozen=True)
class Sent:
    """A finished run: every record in the ledger was acknowledged by the broker."""

    seconds: float
    ledger: Ledger

    @property
    def records(self) -> int:
        return self.ledger.produced

    @property
    def rate(self) -> float:
        """Records a second, the final flush included."""
        return self.records / self.seconds if self.seconds else 0.0


def run_producer(
    records: Iterator[Record],
    *,
    client: Mapping[str, Any],
    rate: float | None = None,
    count: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Sent:
    """Send records and return when every one is acknowledged.

    Args:
        client: librdkafka's options, `bootstrap.servers` among them.
        rate: records a second, kept in slices of 10 ms; 0 or None: as fast as they go.
        count: end after so many; None: go on until `stop` or the end of `records`.
        stop: asked at least every 50 ms while the broker keeps up; when true, what was taken from
            `records` is delivered and the run ends.

    Raises:
        BrokerError: a record was refused, or not acknowledged within two minutes.
        ProjectError: the rate or the count is negative.
    """
    return _Sender(client).run(records, rate=rate, count=count, stop=stop)


class BackgroundProducer:
    """`run_producer` in a thread, for a demo or a test: `start()`, `sent`, `stop()`; or a `with` block.

    The thread ends with the process at the latest: it is a daemon.
    """

    def __init__(
        self,
        records: Iterator[Record],
        *,
        client: Mapping[str, Any],
        rate: float | None = None,
        count: int | None = None,
    ) -> None:
        self._sender = _Sender(client)
        self._asked = threading.Event()
        self._result: Sent | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(records, rate, count), daemon=True)

    @property
    def sent(self) -> int:
        """Records acknowledged by the broker so far (once the run has ended: all)."""
        return self._sender.acknowledged

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Sent:
        """End the run, wait for the last acknowledgement, and say what was sent.

        Raises:
            BrokerError: as `run_producer`, also when the run had ended by it before.
        """
        self._asked.set()
        return self.wait()

    def wait(self) -> Sent:
        """Wait for a run with a count to end by itself.

        Raises:
            BrokerError: as `run_producer`.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def __enter__(self) -> BackgroundProducer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, records: Iterator[Record], rate: float | None, count: int | None) -> None:
        try:
            self._result = self._sender.run(records, rate=rate, count=count, stop=self._asked.is_set)
        except BaseException as e:  # handed to whoever stops or waits
            self._error = e


class _Sender:
    """One client and what went through it."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._failures: list[tuple[str, KafkaError]] = []
        self._producer = Producer({**PRODUCER, **client, "on_delivery": self._report})
        self._servers = client.get("bootstrap.servers", "?")
        self._ledger = Ledger()
        self._lost = Lost(self._producer, client)

    @property
    def acknowledged(self) -> int:
        return max(0, self._ledger.produced - len(self._producer) - len(self._failures))

    def run(
        self, records: Iterator[Record], *, rate: float | None, count: int | None, stop: Callable[[], bool]
    ) -> Sent:
        if (rate or 0) < 0 or (count or 0) < 0:
            raise ProjectError(f"rate {rate}, count {count}: neither can be negative", code="RATE_INVALID")
        begin = time.monotonic()
        try:
            self._send_all(records, rate or None, sys.maxsize if count is None else count, stop)
            while self._producer.flush(LONGEST_PAUSE):
                self._look()
            self._raise_failures()
        except KafkaException as e:
            raise BrokerError(
                f"broker {self._servers}: {e.args[0]}",
                code="RECORDS_NOT_DELIVERED",
                hint="is it up, with room on disk?",
            ) from e
        return Sent(time.monotonic() - begin, self._ledger)

    def _send_all(
        self, records: Iterator[Record], rate: float | None, limit: int, stop: Callable[[], bool]
    ) -> None:
        begin = time.monotonic()
        sent = 0
        while sent < limit and not stop():
            if rate is not None:
                elapsed = time.monotonic() - begin
                due = int(elapsed * rate) + 1 - sent
                if due <= 0:
                    self._poll(min(max(sent / rate - elapsed, SLICE_SECONDS), LONGEST_PAUSE))
                    continue
            else:
                due = SLICE_RECORDS
            taken = self._send(islice(records, min(due, SLICE_RECORDS, limit - sent)))
            if not taken:
                return
            sent += taken
            self._poll(0)

    def _send(self, records: Iterator[Record]) -> int:
        produce, ledger = self._producer.produce, self._ledger
        before = ledger.produced
        for topic, key, value, partition, timestamp, fault in records:
            while True:
                try:
                    produce(
                        topic, value, key, -1 if partition is None else partition, None, None, timestamp or 0
                    )
                    break
                except BufferError:  # the local queue is full: let it drain
                    self._poll(SLICE_SECONDS)
            ledger.produced += 1
            if fault is not None:
                ledger.faults[fault] += 1
        return ledger.produced - before

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._look()

    def _look(self) -> None:
        """Raise what failed, or that the client has lost its brokers.

        Another client could send twice what this one had on its way.
        """
        self._raise_failures()
        if self._lost(self.acknowledged):
            n = self._ledger.produced - self.acknowledged
            self._producer.purge()
            self._producer.flush(1)
            raise BrokerError(
                f"{n} record(s) not delivered to {self._servers}: the client lost its brokers as those were "
                "stopped",
                code="RECORDS_NOT_DELIVERED",
                hint="run again",
            )

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append((message.topic() or "?", error))

    def _raise_failures(self) -> None:
        if self._failures:
            topic, error = self._failures[0]
            self._producer.purge()
            self._producer.flush(1)  # what was waiting, and is given up now, is reported too
            n = len(self._failures)
            raise BrokerError(
                f"topic {topic}: {n} record(s) not delivered to {self._servers}: {error.str()}",
                code="RECORDS_NOT_DELIVERED",
                hint="check the broker's log and the topic's settings, then run again",
            )
