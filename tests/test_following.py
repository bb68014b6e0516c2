"""Bronze of few records, read as they come by this process: the same rows as by a query, each once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from drained import RAW, Drained
from pyspark.sql import SparkSession

from headwater.common.progress import Board
from headwater.common.wait import until
from headwater.connectors.kafka import tail
from headwater.connectors.kafka.records import Records
from headwater.flows import backlog, following, source
from headwater.flows.backlog import Backlog
from headwater.flows.following import Following
from headwater.flows.reading import Size
from headwater.run.supervisor import Options, Run
from headwater.storage import log
from headwater.storage.target import Target


@pytest.fixture
def case(tmp_path: Path, broker: str, spark: SparkSession) -> Drained:
    return Drained(tmp_path, broker, partitions=2)


class Live:
    """A run that reads what comes, and how often each of its two ways was begun."""

    def __init__(self, case: Drained, patch: pytest.MonkeyPatch, trigger: str = "50 milliseconds") -> None:
        self.case, self.begun = case, {"following": 0, "backlog": 0}
        self.notices = StringIO()
        self.run = Run(case.project, Options(trigger=trigger), Board(notices=self.notices))
        for of, name in ((Following, "following"), (Backlog, "backlog")):
            patch.setattr(of, "__call__", self._counted(of.__call__, name))

    def _counted(self, call: Any, name: str) -> Any:
        def counted(*args: Any) -> Any:
            self.begun[name] += 1
            return call(*args)

        return counted

    def records(self) -> list[tuple[Any, ...]]:
        """What the table has, but for when it was read."""
        table = Target(self.case.lake.place(RAW))
        held = table.held(table.columns)
        at = held.schema.get_field_index("timestamp")
        rows = held.set_column(at, "timestamp", held["timestamp"].cast(pa.int64())).to_pylist()
        return sorted(
            (row["partition"], row["offset"], row["key"], row["value"], row["timestamp"], str(row["headers"]))
            for row in rows
        )

    def has(self, count: int) -> None:
        """Wait until the table has so many."""
        assert until(lambda: len(self.records()) >= count, within=60), self.notices.getvalue()

    def follows(self, times: int = 1) -> None:
        """Wait until what comes is read by this process."""
        assert until(lambda: self.begun["following"] >= times, within=60), self.notices.getvalue()


@contextmanager
def live(case: Drained, patch: pytest.MonkeyPatch, trigger: str = "50 milliseconds") -> Iterator[Live]:
    found = Live(case, patch, trigger)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        found.run.stop()
        thread.join()


def admits_any_time(case: Drained) -> None:
    """As brokers before Kafka 4 do."""
    entry = ConfigEntry(
        "message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, case.topic, incremental_configs=[entry])
    admin = AdminClient(case.client)  # which has to live until the answer
    admin.incremental_alter_configs([resource])[resource].result()


def nasty(case: Drained, producer: Producer, first: int) -> int:
    """Records of every kind; how many."""
    kinds: list[dict[str, Any]] = [
        {"value": b"1"},
        {"value": b"", "key": b""},
        {"value": None, "key": b"k"},
        {"value": "ä😀".encode(), "headers": [("a", b"1"), ("a", None), ("b", b"")]},
        {"value": b"\x00\xff", "headers": [], "timestamp": 1},
        {"value": b"old", "timestamp": 1_000_000_000_123},
        {"value": b"in microseconds", "timestamp": 1_700_000_000_000_000},
    ]
    for at, kind in enumerate(kinds):
        producer.produce(case.topic, partition=(at + first) % 2, **kind)
    return len(kinds)


@pytest.mark.parametrize("unit", ["microseconds", "nanoseconds"])  # of which Spark reads no records
def test_each_record_is_the_row_that_a_query_makes_of_it(
    case: Drained, tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    admits_any_time(case)
    case.send(1)
    case.run()
    producer = Producer(case.client)
    with live(case, monkeypatch) as run:
        run.follows()
        sent = 1 + nasty(case, producer, 0) + nasty(case, producer, 1)
        for partition in range(2 if unit == "nanoseconds" else 0):
            producer.produce(case.topic, b"x", partition=partition, timestamp=1_700_000_000_000_000_000)
            sent += 1
        assert producer.flush(30) == 0
        run.has(sent)
        followed = run.records()
    assert run.begun == {"following": 1, "backlog": 0}
    assert sum(case.flow["consumed"][case.topic].values()) == sent
    other = Drained(tmp_path / "other", broker)
    other.topic = case.topic
    (other.root / "bronze/raw.py").write_text((case.root / "bronze/raw.py").read_text())
    other.run()
    assert Live(other, monkeypatch).records() == followed
    version = log.head(case.lake.place(RAW).path)
    case.run()
    assert log.head(case.lake.place(RAW).path) == version, "a query has nothing left to read"


def test_a_backlog_of_which_nothing_comes_is_tried_again(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    admits_any_time(case)
    producer = Producer(case.client)
    producer.produce(case.topic, b"x", partition=0, timestamp=1_700_000_000_000_000_000)
    assert producer.flush(30) == 0
    monkeypatch.setattr(backlog, "TIMEOUT", 0.5)
    monkeypatch.setattr(backlog, "_BEAT", 0.1)
    take, silent = Records.take, iter(range(8))

    def slow(records: Records, most: int, *, within: float, due: float) -> Any:
        if next(silent, None) is None:
            return take(records, most, within=5, due=due)
        time.sleep(within)
        return []

    monkeypatch.setattr(Records, "take", slow)
    case.run()
    assert "no answer from Kafka" in case.said
    assert [row[3] for row in Live(case, monkeypatch).records()] == [b"x"]


def test_transactions_that_were_aborted_are_read_by_nobody(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1)
    case.run()
    producer = Producer({**case.client, "transactional.id": case.topic})
    producer.init_transactions(60)
    with live(case, monkeypatch) as run:
        run.follows()
        for value, ends in ((b"2", True), (b"3", False), (b"4", True)):
            producer.begin_transaction()
            producer.produce(case.topic, value, partition=0)
            producer.flush(30)
            producer.commit_transaction() if ends else producer.abort_transaction()
        run.has(3)
        assert [row[3] for row in run.records()] == [b"1", b"2", b"4"]
        end = {"0": 7, "1": 0}
        assert until(lambda: case.flow["consumed"][case.topic] == end, within=30), case.flow
    assert run.begun["backlog"] == 0


def test_a_backlog_is_left_to_a_query_and_taken_back_from_it(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1)
    case.run()
    monkeypatch.setattr(following, "_MOST", 3)
    monkeypatch.setattr(source, "FEW", 3)
    with live(case, monkeypatch) as run:
        run.follows()
        case.send(*range(2, 400))
        run.has(399)
        run.follows(2)
        case.send(*range(400, 402))
        run.has(401)
        assert [int(row[3]) for row in run.records()] == [*range(1, 402)]
    assert run.begun["backlog"] >= 1


def test_how_many_records_a_batch_may_have_is_asked_for_each(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.send(1)
    case.run()
    bounds, take, asked = itertools.count(5), Records.take, list[int]()

    def told(self: Records, most: int, **options: Any) -> Any:
        asked.append(most)
        return take(self, most, **options)

    monkeypatch.setattr(Size, "admitted", lambda _: next(bounds))  # as by how large the last ones were
    monkeypatch.setattr(Records, "take", told)
    with live(case, monkeypatch) as run:
        for number in (2, 3):
            case.send(number)
            run.has(number)
    assert len(asked) > 1 and asked == [*range(asked[0], asked[0] + len(asked))]


def test_partitions_that_are_added_are_read(case: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    case.send(1)
    case.run()
    monkeypatch.setattr(following, "_PARTITIONS", 0.2)
    with live(case, monkeypatch) as run:
        case.send(2)
        run.has(2)
        admin = AdminClient(case.client)
        admin.create_partitions([NewPartitions(case.topic, 3)])[case.topic].result()
        run.follows(2)
        case.send(3, partition=2)
        run.has(3)
    assert case.flow["consumed"] == {case.topic: {"0": 2, "1": 0, "2": 1}}


def test_a_topic_that_is_made_again_stops_the_flow(case: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    case.send(1, 2, 3)
    case.run()
    with live(case, monkeypatch) as run:
        run.follows()
        case.make_again(*range(11, 16))
        assert until(lambda: "[TOPIC_RECREATED]" in run.notices.getvalue(), within=90), run.notices.getvalue()
    assert [int(row[3]) for row in run.records()] == [1, 2, 3]


def test_a_run_that_waits_for_its_trigger_ends_at_once(
    case: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking, take = threading.Event(), Records.take

    def told(self: Records, *args: Any, wait: Any, **options: Any) -> Any:
        def waits(seconds: float) -> object:
            if seconds > 60:
                taking.set()
            return wait(seconds)

        return take(self, *args, wait=waits, **options)

    monkeypatch.setattr(Records, "take", told)
    case.send(1)
    case.run()
    with live(case, monkeypatch, trigger="1 hour") as run:
        run.follows()
        case.send(2)
        run.has(2)
        case.send(3)
        assert taking.wait(60)
    assert len(run.records()) == 2


@pytest.mark.parametrize("at", [1_700_000_000_000_000, 1_700_000_000_000_000_000])  # in the wrong unit
def test_a_timestamp_that_nobody_can_hold_is_the_last_one(at: int) -> None:
    message = SimpleNamespace(
        **dict.fromkeys(("key", "value", "headers", "error"), lambda: None),
        **{"topic": lambda: "raw", "partition": lambda: 0, "offset": lambda: 7},
        timestamp=lambda: (TIMESTAMP_CREATE_TIME, at),
    )
    records: Any = SimpleNamespace(_topic="raw", _cluster="main")
    rows = Records.rows(records, [message], pa.scalar(0, pa.timestamp("us", "UTC")))  # type: ignore[list-item]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [min(at, (2**63 - 1) // 1000) * 1000]
    assert tail.fields(message)["timestamp"] == "9999-12-31T23:59:59.999Z"  # type: ignore[arg-type]
