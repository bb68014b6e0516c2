"""Records of transactions that were aborted are read by nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import call
from confluent_kafka import Consumer, Producer, TopicPartition
from drained import RAW, Drained
from pyspark.sql import SparkSession

from headwater.connectors.kafka import consumer_options, source_options
from headwater.connectors.kafka.extent import extent
from headwater.project.conf import Conf
from headwater.query.inspect.status import standings
from headwater.storage.lake import Lake

ALERT = """
@hw.alert(topic='{}', source='bronze.raw', decode=hw.json('n INT'))
def told(raw):
    'All of them.'
    return raw.select('n')
"""


def test_an_open_transaction_holds_up_no_drain(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    case = Drained(tmp_path, broker, partitions=2)
    transactional = Producer({**case.client, "transactional.id": case.topic})
    transactional.init_transactions(60)
    case.send(1, 2)
    case.send(3, partition=1)
    transactional.begin_transaction()
    transactional.produce(case.topic, b"4", partition=0)
    assert transactional.flush(30) == 0
    case.send(5)
    case.send(6, partition=1)
    assert case.taken() == [1, 2, 3, 6]
    assert case.taken() == [1, 2, 3, 6]
    transactional.commit_transaction(30)
    assert case.taken() == [1, 2, 3, 4, 5, 6]


def send(case: Drained, transactional: Producer, *values: int, commit: bool) -> None:
    """One transaction, which is committed or aborted."""
    transactional.begin_transaction()
    for value in values:
        transactional.produce(case.topic, f'{{"n": {value}}}'.encode(), partition=0)
    assert transactional.flush(30) == 0
    if commit:
        transactional.commit_transaction(30)
    else:
        transactional.abort_transaction(30)


def values(case: Drained, topic: str) -> list[bytes | None]:
    """All records of a topic, aborted ones too."""
    consumer = Consumer({**case.client, "group.id": "test", "isolation.level": "read_uncommitted"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    found = consumer.consume(end, timeout=10)
    consumer.close()
    return [message.value() for message in found]


@pytest.fixture
def case(tmp_path: Path, broker: str, spark: SparkSession) -> Drained:
    return Drained(tmp_path, broker)


def test_aborted_records_are_read_by_no_table_no_alert_and_no_person(case: Drained) -> None:
    alerts = f"{case.topic}-alerts"
    with (case.root / "bronze" / "raw.py").open("a") as definition:
        definition.write(ALERT.format(alerts))
    transactional = Producer({**case.client, "transactional.id": case.topic})
    transactional.init_transactions(60)
    send(case, transactional, 1, 2, commit=True)
    send(case, transactional, 3, 4, 5, commit=False)
    send(case, transactional, 6, commit=True)
    send(case, transactional, 7, 8, commit=False)  # the topic ends in records that nobody reads
    case.run()
    committed = [f'{{"n": {n}}}' for n in (1, 2, 6)]
    taken = case.rows(f'SELECT decode(value) AS value FROM {RAW} ORDER BY "offset"')
    assert [row["value"] for row in taken] == committed
    assert values(case, alerts) == [b'{"n":1}', b'{"n":2}', b'{"n":6}']
    tail = call(["kafka", "tail", case.topic, "--no-follow", "--format", "json"], case.root)
    assert [json.loads(line)["value"] for line in tail.stdout.splitlines()] == committed
    end = extent(case.client, case.topic).end[0]
    assert end > 8, "the marks of transactions have offsets, too"
    assert case.flow["consumed"] == {case.topic: {"0": end}}, "nothing is left that a window would wait for"
    (standing,) = standings(case.project)
    assert standing.behind == 0
    send(case, transactional, 9, 10, commit=False)
    case.run()
    assert case.flow["consumed"] == {case.topic: {"0": end + 3}}
    send(case, transactional, 11, commit=True)
    case.run()
    assert len(case.rows(f"FROM {RAW}")) == 4


def test_an_alert_that_was_killed_amid_its_first_batch_begins_again(case: Drained) -> None:
    alerts = f"{case.topic}-alerts"
    with (case.root / "bronze" / "raw.py").open("a") as definition:
        definition.write(ALERT.format(alerts))
    transactional = Producer({**case.client, "transactional.id": case.topic})
    transactional.init_transactions(60)
    send(case, transactional, 1, commit=True)
    checkpoint = Lake(case.project.conf.lake).flow_folder("bronze.told") / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.59a8fa53-fa74-44e5-9557-688fd94007ba.tmp").touch()
    (checkpoint / "metadata").write_text('{"id":"5e756593-f778-469a-8fa6-e76a7a6606f3"}')
    case.run()
    assert values(case, alerts) == [b'{"n":1}']
    send(case, transactional, 2, commit=True)
    case.run()
    assert values(case, alerts) == [b'{"n":1}', b'{"n":2}']


def test_an_environment_may_read_what_was_aborted() -> None:
    level = "isolation.level"
    assert source_options(Conf(), "k:1")[f"kafka.{level}"] == "read_committed"
    assert consumer_options(Conf(), "k:1")[level] == "read_committed"
    conf = Conf(kafka={"bootstrap.servers": "k:1", level: "read_uncommitted"})
    assert source_options(conf, "k:1")[f"kafka.{level}"] == "read_uncommitted"
    assert consumer_options(conf, "k:1")[level] == "read_uncommitted"
