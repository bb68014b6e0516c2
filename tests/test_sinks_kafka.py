"""A topic: rows as JSON, keyed; what passes is tried again, and what does not stops with what to do."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from batches import BEYOND, TABLE, beyond, changes, published
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from raising import raises_code

from headwater.common.wait import until
from headwater.connectors.kafka import lost
from headwater.connectors.kafka.tail import records
from headwater.connectors.sinks import kafka as sinks_kafka
from headwater.connectors.sinks.kafka import KafkaTopic
from headwater.run.faults import transient

ROW = ("upsert", "a", 1, 1.0)


def made(broker: str, **config: str) -> str:
    """A topic of its own."""
    name = f"sink-{uuid4().hex[:8]}"
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([topic])[name].result()
    return name


def opened(servers: str, topic: str, stop: threading.Event | None = None, **options: str | int) -> KafkaTopic:
    client = {"bootstrap.servers": servers, "topic.metadata.propagation.max.ms": 500, **options}
    sink = KafkaTopic(topic, client, stop or threading.Event())
    sink.open(published())
    return sink


def nowhere() -> str:
    """Where no broker is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_a_client_that_lost_its_brokers_is_told_from_a_broker_that_is_away(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost, "QUIET", 0.2)
    monkeypatch.setattr(lost, "FOUND", 1.0)
    monkeypatch.setattr(
        sinks_kafka, "Producer", lambda options: Producer({**options, "bootstrap.servers": nowhere()})
    )
    sink, away = opened(broker, made(broker)), opened(nowhere(), "any", **{"message.timeout.ms": 4_000})
    with raises_code("SINK_UNAVAILABLE", match="has lost its brokers") as e:
        sink.write(changes([ROW]))
    assert transient(e.value)
    with raises_code("SINK_UNAVAILABLE", match="timed out"):
        away.write(changes([ROW]))
    sink.close()
    away.close()


def test_a_broker_that_is_away_for_long_is_unavailable_and_is_sent_to_when_it_is_back(broker: str) -> None:
    topic = made(broker)
    sink = opened(nowhere(), topic, **{"message.timeout.ms": 500})
    with raises_code("SINK_UNAVAILABLE", table="gold.usage", match=r"^gold\.usage->here: .*timed out") as e:
        sink.write(changes([ROW]))
    assert transient(e.value)
    sink.close()
    again = opened(broker, topic)
    again.write(changes([ROW]))
    again.close()
    (record,) = records({"bootstrap.servers": broker}, topic, "earliest", follow=False)
    assert record.key() == b'{"host":"a","cpu":1}'


@pytest.mark.parametrize("most", [1_000, 10])  # rows that wait to be sent
def test_a_run_that_ends_waits_no_longer_for_a_broker_that_is_away(most: int) -> None:
    stop = threading.Event()
    sink = opened(nowhere(), "any", stop, **{"queue.buffering.max.messages": most})
    threading.Timer(0.5, stop.set).start()
    with raises_code("SINK_UNAVAILABLE", table="gold.usage"):
        sink.write(changes([ROW] * 100))
    sink.close()


@pytest.mark.parametrize(
    ("config", "size", "says"),
    [
        ({}, 2_000_000, "max.message.bytes"),  # the client refuses it
        ({"max.message.bytes": "1000"}, 5_000, "max.message.bytes"),  # the broker does
        (None, 1, "run again"),
    ],
)
def test_what_a_topic_never_takes_is_an_error_that_says_what_to_do(
    broker: str, config: dict[str, str] | None, size: int, says: str
) -> None:
    topic = "sink-unknown" if config is None else made(broker, **config)
    sink = opened(broker, topic)
    with raises_code("SINK_REJECTS_ROW", table="gold.usage", match=r"^gold\.usage->here: ") as e:
        sink.write(changes([ROW, ("upsert", "secret" * size, 1, 1.0)]))
    assert topic in str(e.value) and TABLE in str(e.value) and says in str(e.value)
    assert "secret" not in str(e.value)
    sink.close()


def test_a_time_beyond_the_year_9999_is_told_by_its_column() -> None:
    table, batch = beyond()
    sink = opened(nowhere(), "any")
    sink.open(table)
    with raises_code("SINK_REJECTS_ROW", table="gold.usage", match=BEYOND):
        sink.write(batch)
    sink.close()


def test_a_topic_that_was_made_again_is_another_one(broker: str) -> None:
    topic = made(broker)
    sink = opened(broker, topic)
    first = sink.identity()
    assert first and sink.identity() == first
    client = AdminClient({"bootstrap.servers": broker})
    client.delete_topics([topic])[topic].result()

    def is_made_again() -> bool:
        try:
            client.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result()
        except KafkaException:
            return False  # it is being deleted still
        return True

    assert until(is_made_again, within=30)
    assert sink.identity() not in (None, first)
    sink.close()


@pytest.fixture
def of_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in New York."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("of_new_york")
def test_every_type_has_its_form_and_keys_that_differ_are_written_so(broker: str) -> None:
    at = datetime(2026, 1, 31, 6, 0, 0, 100, UTC)
    wrote = {
        "at": (pa.timestamp("us", "UTC"), at, "2026-01-31T06:00:00.000100Z"),
        "day": (pa.date32(), date(2026, 1, 31), "2026-01-31"),
        "local": (pa.timestamp("us"), datetime(2026, 1, 31, 6), "2026-01-31T06:00:00.000000"),
        "whole": (pa.int64(), 2**63 - 1, 2**63 - 1),
        "real": (pa.float64(), 0.1, 0.1),
        "nan": (pa.float64(), math.nan, "NaN"),
        "most": (pa.float32(), math.inf, "Infinity"),
        "least": (pa.float64(), -math.inf, "-Infinity"),
        "exact": (pa.decimal128(10, 2), Decimal("12.50"), "12.50"),
        "raw": (pa.binary(), b"\x00\xff", "00ff"),
        "yes": (pa.bool_(), True, True),
        "none": (pa.string(), None, None),
        "text": (pa.string(), "ü\n", "ü\n"),
        "list": (pa.list_(pa.float64()), [math.nan, None, 1.5], ["NaN", None, 1.5]),
        "struct": (
            pa.struct([("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())]),
            {"at": datetime(1, 1, 1, tzinfo=UTC), "raw": b"a"},
            {"at": "0001-01-01T00:00:00.000000Z", "raw": "61"},
        ),
        "map": (pa.map_(pa.string(), pa.float64()), [("a", math.nan)], [["a", "NaN"]]),
    }
    columns = pa.schema([(name, kind) for name, (kind, _, _) in wrote.items()])
    row = {name: value for name, (_, value, _) in wrote.items()}
    later = {**row, "at": at.replace(microsecond=101)}
    topic = made(broker)
    sink = KafkaTopic(topic, {"bootstrap.servers": broker}, threading.Event())
    sink.open(published(("at",), columns))
    sink.write(changes([("upsert", *row.values()), ("upsert", *later.values())], columns=columns))
    sink.close()
    first, second = records({"bootstrap.servers": broker}, topic, "earliest", follow=False)
    assert (first.key(), second.key()) == (
        b'{"at":"2026-01-31T06:00:00.000100Z"}',
        b'{"at":"2026-01-31T06:00:00.000101Z"}',
    )

    def no_json(literal: str) -> Any:
        raise AssertionError(f"{literal} is not JSON")

    found = json.loads(first.value() or b"", parse_constant=no_json)
    assert found == {name: want for name, (_, _, want) in wrote.items()}
