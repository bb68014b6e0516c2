"""Loading a generator by its path, and delivering every one of its records to a real broker."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from raising import raises_code

from headwater.connectors.kafka import lost
from headwater.connectors.produce import (
    DEFAULT_START,
    BackgroundProducer,
    Faults,
    Ledger,
    Record,
    event_clock,
    load_generator,
    run_producer,
    sender,
    stepped,
)
from headwater.errors.codes import Code

ROOT = Path(__file__).parents[1]
SEED = 4_242
FAULTS = Faults(late=0.05, duplicate=0.05, malformed=0.05, future=0.05, invalid=0.05)
SHARES = ("late", "duplicate", "malformed", "future", "invalid", "each")


@pytest.fixture(autouse=True)
def _print_seed() -> None:
    print(f"seed {SEED}")


# Arguments


@given(name=st.sampled_from(SHARES), share=st.floats())
def test_a_share_outside_0_to_1_is_refused_by_name(name: str, share: float) -> None:
    if 0 <= share <= 1:
        assert getattr(Faults(**{name: share}), name) == share
    else:
        assert math.isnan(share) or not 0 <= share <= 1
        with raises_code("FAULTS_INVALID", match=name):
            Faults(**{name: share})


@given(shares=st.lists(st.floats(min_value=0, max_value=1), min_size=6, max_size=6))
def test_shares_are_refused_when_they_add_up_to_more_than_1(shares: list[float]) -> None:
    names = dict(zip(SHARES, shares, strict=True))
    if sum(shares) <= 1:
        assert Faults(**names).total <= 1
    elif sum(shares) > 1.000001:
        with raises_code("FAULTS_INVALID", match="add up"):
            Faults(**names)


def test_the_share_of_each_kind_is_spread_over_the_kinds_and_the_future() -> None:
    spread = Faults(late=0.1, malformed=0.2, each=0.01).spread(malformed=13, invalid=9)
    assert spread.each == 0 and spread.late == 0.1
    assert [spread.malformed, spread.invalid, spread.future] == pytest.approx([0.33, 0.09, 0.01])
    assert Faults(late=0.1, invalid=0.3).spread(malformed=13, invalid=9) == Faults(late=0.1, invalid=0.3)
    assert Faults(each=0.25).spread(malformed=2, invalid=1).total == pytest.approx(1)
    with raises_code("FAULTS_INVALID", match=r"23 kinds .* at 0\.05 each, .* add up to 1\.15"):
        Faults(each=0.05).spread(malformed=13, invalid=9)


@pytest.mark.parametrize("wrong", [{"rate": -1.0}, {"count": -1}])
def test_a_negative_rate_or_count_is_refused(wrong: dict[str, Any]) -> None:
    with raises_code("RATE_INVALID"):
        run_producer(iter(()), client={"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, **wrong)


def test_a_stepped_clock_begins_at_the_instant_whatever_its_zone() -> None:
    utc = datetime(2026, 3, 1, 12, tzinfo=UTC)
    elsewhere = utc.astimezone(timezone(timedelta(hours=5, minutes=30)))
    for start in (utc, elsewhere, utc.replace(tzinfo=None)):
        assert list(islice(stepped(start, timedelta(seconds=2)), 2)) == [1772366400000, 1772366402000]


def test_the_wall_clock_rules_a_paced_run_without_a_start_only() -> None:
    past, present = int(DEFAULT_START.timestamp() * 1000), time.time() * 1000
    assert next(event_clock(rate=None, start=None)) == past
    assert next(event_clock(rate=0, start=None)) == past
    assert next(event_clock(rate=5, start=DEFAULT_START)) == past
    assert abs(next(event_clock(rate=5, start=None)) - present) < 5_000


# Loading


def test_an_unknown_generator_names_the_known_ones() -> None:
    for name in ("nope", "../generators/iot", "iot.py", ""):
        with raises_code("UNKNOWN_GENERATOR"):
            load_generator(ROOT, name)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("topics = []\nraise OSError('x')", "MODULE_FAILED", ":2: OSError: x"),
        ("topics = []\ndef", "MODULE_FAILED", ":2: SyntaxError"),
        ("topics = []", "GENERATOR_INCOMPLETE", ": defines no 'records'"),
    ],
)
def test_a_broken_generator_is_named_by_its_file(tmp_path: Path, text: str, code: Code, message: str) -> None:
    (tmp_path / "generators").mkdir()
    (tmp_path / "generators" / "broken.py").write_text(text)
    with raises_code(code, match=rf"broken\.py{message}"):
        load_generator(tmp_path, "broken")


def test_a_generator_is_loaded_without_spark() -> None:
    """`headwater produce` begins in a moment: Spark is not even imported."""
    loaded = "import sys; from headwater.connectors.produce import load_generator; from pathlib import Path; "
    script = f"{loaded} load_generator(Path({str(ROOT)!r}), 'iot'); sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_ledger_adds_up() -> None:
    ledger = Ledger()
    for fault in (
        None,
        "late",
        "malformed/empty",
        "malformed/empty",
        "malformed/nan",
        "duplicate",
        "invalid/no_cpu",
    ):
        ledger.add(Record("t", None, b"", fault=fault))
    assert ledger.as_dict() == {
        "produced": 7,
        "well_formed": 4,
        "late": 1,
        "duplicate": 1,
        "future": 0,
        "malformed": {"empty": 2, "nan": 1},
        "invalid": {"no_cpu": 1},
    }


# Delivery


@pytest.fixture
def topic(broker: str) -> str:
    return make_topic(broker, f"produce-{uuid.uuid4().hex[:8]}")


def make_topic(broker: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics([NewTopic(name, 4, 1)]).values():
        made.result(30)
    return name


def numbered(topic: str) -> Iterator[Record]:
    return (Record(topic, b"k", b"%d" % n, n % 4) for n in count())


def iot_records(topic: str) -> Iterator[Record]:
    made = load_generator(ROOT, "iot").records(seed=SEED, faults=FAULTS, clock=stepped())
    return (record._replace(topic=topic) for record in made)


def received(broker: str, topic: str) -> dict[int, list[Message]]:
    """All records of the topic, by partition, in order."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False})
    read: dict[int, list[Message]] = {}
    for partition in range(4):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        read[partition] = []
        consumer.assign([TopicPartition(topic, partition, low)])
        while len(read[partition]) < high - low:
            for message in consumer.consume(high - low - len(read[partition]), timeout=30):
                assert message.error() is None
                read[partition].append(message)
    consumer.close()
    return read


def test_every_record_arrives_once_in_order_as_it_was_made(broker: str, topic: str) -> None:
    sent = run_producer(iot_records(topic), client={"bootstrap.servers": broker}, count=20_000)
    expected: dict[int, list[tuple[bytes | None, bytes | None]]] = {p: [] for p in range(4)}
    ledger = Ledger()
    for record in islice(iot_records(topic), 20_000):
        ledger.add(record)
        assert record.partition is not None
        expected[record.partition].append((record.key, record.value))
    got = {p: [(m.key(), m.value()) for m in ms] for p, ms in received(broker, topic).items()}
    assert got == expected
    assert sent.ledger == ledger


def test_a_full_local_queue_loses_nothing(broker: str, topic: str) -> None:
    client = {"bootstrap.servers": broker, "queue.buffering.max.messages": 500}
    assert run_producer(numbered(topic), client=client, count=20_000).records == 20_000
    values = sorted(int(m.value() or b"") for ms in received(broker, topic).values() for m in ms)
    assert values == list(range(20_000))


def test_kafkas_timestamp_is_the_records_own_or_the_time_of_sending(broker: str, topic: str) -> None:
    before = time.time() * 1000
    run_producer(
        iter([Record(topic, None, b"own", 0, 1_767_225_600_000), Record(topic, None, b"now", 1)]),
        client={"bootstrap.servers": broker},
    )
    got = received(broker, topic)
    assert got[0][0].timestamp()[1] == 1_767_225_600_000
    assert before - 1 <= got[1][0].timestamp()[1] <= time.time() * 1000


def test_a_refused_record_is_an_error_that_names_the_topic(broker: str, topic: str) -> None:
    ahead = int(time.time() * 1000) + 3 * 86_400_000  # the broker takes no timestamp so far ahead
    # one is refused; the other may be under way then, and is given up with it
    records = iter([Record(topic, None, b"ok", 0), Record(topic, None, b"refused", 1, ahead)])
    with raises_code("RECORDS_NOT_DELIVERED", match=rf"topic {topic}: [12] record\(s\) not delivered"):
        run_producer(records, client={"bootstrap.servers": broker})


def test_an_absent_broker_is_an_error_not_a_silence() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1_000, "log_level": 0}
    with raises_code(
        "RECORDS_NOT_DELIVERED", match=r"topic any: 10 record.* not delivered to 127\.0\.0\.1:1"
    ):
        # at this rate the first times out before the others
        run_producer(numbered("any"), client=client, count=10, rate=100)


def test_a_rate_is_kept_in_small_slices(broker: str, topic: str) -> None:
    times: list[float] = []

    def timed() -> Iterator[Record]:
        for record in numbered(topic):
            times.append(time.monotonic())
            yield record

    sent = run_producer(timed(), client={"bootstrap.servers": broker}, rate=1_000, count=2_000)
    assert sent.records == 2_000
    assert times[-1] - times[0] == pytest.approx(1.999, abs=0.2)
    behind = [n / 1_000 - (t - times[0]) for n, t in enumerate(times)]
    median = sorted(abs(b) for b in behind)[1_000]
    print(f"median distance from an even pace: {median * 1000:.1f} ms")
    assert median < 0.05


def test_in_the_background_it_counts_and_stops_with_nothing_lost(broker: str, topic: str) -> None:
    producer = BackgroundProducer(numbered(topic), client={"bootstrap.servers": broker}, rate=2_000)
    producer.start()
    deadline = time.monotonic() + 300
    while producer.sent < 500:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    sent = producer.stop()
    assert sent.records == producer.sent >= 500
    values = sorted(int(m.value() or b"") for ms in received(broker, topic).values() for m in ms)
    assert values == list(range(sent.records))


def test_a_client_that_lost_its_brokers_is_told_from_a_broker_that_is_away(
    broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sender, "Producer", lambda options: Producer({**options, "bootstrap.servers": "127.0.0.1:1"})
    )
    monkeypatch.setattr(lost, "QUIET", 0.2)
    monkeypatch.setattr(lost, "FOUND", 1.0)
    with raises_code("RECORDS_NOT_DELIVERED", match=r"10 record\(s\) not delivered .* lost its brokers"):
        run_producer(numbered(topic), client={"bootstrap.servers": broker, "log_level": 0}, count=10)
    away = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 4_000, "log_level": 0}
    with raises_code("RECORDS_NOT_DELIVERED", match="timed out"):
        run_producer(numbered(topic), client=away, count=10)


def test_in_the_background_an_error_reaches_whoever_stops_it() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500, "log_level": 0}
    producer = BackgroundProducer(numbered("any"), client=client, count=3)
    producer.start()
    with raises_code("RECORDS_NOT_DELIVERED"):
        producer.wait()
    with raises_code("RECORDS_NOT_DELIVERED"):
        producer.stop()
    assert producer.sent == 0


def test_a_background_producer_does_not_outlive_its_process(broker: str, topic: str) -> None:
    program = (
        "from headwater.connectors.produce import *\n"
        f"r = (Record({topic!r}, None, b'x', 0) for _ in iter(int, 1))\n"
        f"BackgroundProducer(r, client={{'bootstrap.servers': {broker!r}}}, rate=100).start()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=30)


# The command


@pytest.fixture
def project(broker: str, topic: str, tmp_path: Path) -> Path:
    """A project on that broker whose only generator is iot, writing to a topic of its own."""
    for folder in ("conf", "bronze", "generators"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf" / "local.yaml").write_text(f"kafka: {{bootstrap.servers: '{broker}'}}\n")
    text = (ROOT / "generators" / "iot.py").read_text().replace("iot-data-input", f"{topic}-iot")
    (tmp_path / "generators" / "mine.py").write_text(text)
    return tmp_path


COMMAND = [sys.executable, "-c", "from headwater.cli import main; main()", "produce"]


def test_the_command_refuses_wrong_options_in_one_line() -> None:
    for options, said in (
        (["iot", "--start", "yesterday"], "ISO 8601"),
        (["iot", "--late", "0.6", "--malformed", "0.6"], "add up"),
        (["iot", "--late", "1.5"], "--late"),
        (["iot", "--bad", "0.05"], "kinds of bad records"),
        (["nope"], "iot"),
    ):
        done = subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_the_command_makes_the_topic_and_prints_the_ledger(broker: str, topic: str, project: Path) -> None:
    options = ["mine", "--project", str(project), "--count", "3000", "--seed", str(SEED), "--json"]
    options += ["--malformed", "0.1", "--late", "0.1", "--invalid", "0.1", "--bad", "0.01"]
    done = subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    ledger = Ledger()
    faults = Faults(malformed=0.1, late=0.1, invalid=0.1, each=0.01)
    made = load_generator(ROOT, "iot").records(seed=SEED, faults=faults, clock=stepped())
    for record in islice(made, 3_000):
        ledger.add(record)
    assert said["ledger"] == ledger.as_dict()
    assert sum(map(len, received(broker, f"{topic}-iot").values())) == 3_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_everything_delivered(
    broker: str, topic: str, project: Path, number: signal.Signals
) -> None:
    options = ["mine", "--project", str(project), "--rate", "5000", "--json"]
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False})
    target = make_topic(broker, f"{topic}-iot")
    consumer.assign([TopicPartition(target, p, 0) for p in range(4)])
    running = subprocess.Popen([*COMMAND, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        first = consumer.poll(60)
        while first is not None and first.error() is not None:  # the topic is new: no leader yet
            first = consumer.poll(60)
        assert first is not None
        running.send_signal(number)
        out, _ = running.communicate(timeout=30)
    finally:
        running.kill()
        consumer.close()
    assert running.returncode == 0
    said = json.loads(out)["ledger"]["produced"]
    assert said == sum(map(len, received(broker, target).values())) > 0


def test_the_command_refuses_a_topic_with_other_partitions(broker: str, topic: str, project: Path) -> None:
    generator = project / "generators" / "mine.py"
    text = generator.read_text().replace(f"{topic}-iot", topic).replace("partitions=4", "partitions=8")
    generator.write_text(text)
    options = ["mine", "--project", str(project), "--count", "1"]
    done = subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"topic {topic} has 4 partition(s), not 8" in done.stderr
