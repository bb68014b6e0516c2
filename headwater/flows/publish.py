"""A table's new versions → a Kafka topic: keyed, JSON, at least once.

Of a table whose rows change in place its change feed is read, of any other the files that were added.
The position is kept after the broker has acknowledged the rows: a kill between the two sends them again,
and a reader that keeps the last value of each key (a gold row's key holds its window) is none the wiser.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater import kafka, log
from headwater.definitions import KafkaSink
from headwater.flows.context import Context
from headwater.lake import Place
from headwater.progress import Batch

_GONE = ("delete", "update_preimage")


class PublishFlow:
    """The flow of one sink."""

    def __init__(self, context: Context, sink: KafkaSink) -> None:
        self.name = sink.name
        self._context = context
        self._sink = sink
        self._table = context.tables[sink.table]
        self._names = self._table.columns.fieldNames()
        self._file = context.lake.flow_folder(sink.name) / "position.json"
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                **kafka.client_options(context.project.conf, context.bootstrap),
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 2,
                "on_delivery": self._delivered,
            }
        )

    def run(self) -> None:
        """Send what is new until the run ends; with `once`, until the table has ended and is sent.

        Raises:
            KafkaException: the broker did not take a row in time; nothing is lost, it is sent again.
        """
        heads = self._context.heads
        while not self._context.stop.is_set():
            beat, ended = heads.beat(), heads.ended(self._sink.table)
            if self._step():
                continue
            if self._context.once and ended:
                return
            heads.wait(beat)

    def _step(self) -> bool:
        place = self._context.lake.places().get(self._sink.table)
        if place is None:
            return False
        done = self._position(place)
        if log.head(place.path) <= done:
            return False
        began = time.monotonic()
        commit = log.read(place.path, done + 1)
        sent = 0
        for row in self._rows(commit):
            self._send(row, place, commit.version)
            sent += 1
        self._flush()
        self._keep(place, commit.version)
        seconds = time.monotonic() - began
        if sent:
            self._context.board.batch(
                Batch(self.name, commit.version, -1, sent, sent, 0, seconds, time.time())
            )
        return True

    def _rows(self, commit: log.Commit) -> Iterator[dict[str, Any]]:
        """The rows that the commit added or changed, as they are after it."""
        for file in commit.changes or commit.added:
            for batch in pq.ParquetFile(file.path).iter_batches():
                for row in batch.to_pylist():
                    if row.get("_change_type") not in _GONE:
                        yield {name: row[name] for name in self._names}

    def _send(self, row: dict[str, Any], place: Place, version: int) -> None:
        key = {name: row[name] for name in self._table.keys}
        headers = {"table": place.name, "generation": str(place.generation), "version": str(version)}
        while True:
            try:
                self._producer.produce(
                    self._sink.topic,
                    value=_json(row),
                    key=_json(key) if key else None,
                    headers={name: text.encode() for name, text in headers.items()},
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _flush(self) -> None:
        """Wait until the broker has all rows."""
        while self._producer.flush(0.5) and not self._errors and not self._context.stop.is_set():
            pass
        if self._errors:
            error, self._errors = self._errors[0], []
            raise KafkaException(error)
        if len(self._producer):
            raise KafkaException(KafkaError(KafkaError._PURGE_QUEUE))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _position(self, place: Place) -> int:
        """The last version that was sent."""
        try:
            kept = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return -1
        return int(kept["version"]) if kept["generation"] == place.generation else -1

    def _keep(self, place: Place, version: int) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        half = Path(f"{self._file}.part")
        half.write_text(json.dumps({"generation": place.generation, "version": version}))
        os.replace(half, self._file)


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
