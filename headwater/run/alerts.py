"""The alerts that a demo sees: how many were sent, and the last one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer

from headwater.project.conf import KafkaOptions


class AlertReader:
    """Reads the topics of alerts, from now on."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""
        self._done = threading.Event()

    def said(self) -> str:
        """What came so far, in a line; "" where nothing did."""
        return f"{self.count:,} alerts  {self.last}" if self.count else ""

    @contextmanager
    def reading(self, topics: Sequence[str], client: KafkaOptions) -> Iterator[None]:
        """Read these topics, in a thread that ends with the block."""
        if not topics:
            yield
            return
        own = {"group.id": f"demo-{uuid.uuid4()}", "auto.offset.reset": "latest", "log_level": 3}
        consumer = Consumer({**client, **own, "enable.auto.commit": False})
        consumer.subscribe(list(topics))
        thread = threading.Thread(target=self._read, args=(consumer,), name="alerts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            consumer.close()

    def _read(self, consumer: Consumer) -> None:
        while not self._done.is_set():
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.count += 1
                    self.last = f"{message.topic()} {(message.value() or b'').decode(errors='replace')}"
