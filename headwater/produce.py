"""Send a generator's records to Kafka, at a given rate or as fast as they go.

A generator is a file of the project, `generators/NAME.py`. It offers two names:

    topics: list[Topic]                       # what it writes to; made if missing
    def records(*, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]: ...

`records` never ends. It takes one instant from `clock` for each record it yields (epoch milliseconds,
UTC: when that record is produced) and is a pure function of its arguments: with the same seed, faults
and clock it yields the same bytes in the same order, and a longer run only adds to a shorter one.
Every record that is not an ordinary one says so in `Record.fault`; the ledger counts those labels.
A generator draws from `random.Random(seed).random()` only: the one method whose sequence Python
promises to keep from version to version.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.broker import Topic
from headwater.errors import BrokerError, ProjectError

__all__ = ["BackgroundProducer", "Faults", "Generator", "Ledger", "Record", "Sent", "Topic"]
__all__ += ["event_clock", "load_generator", "run_producer", "stepped", "wall_clock"]

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_STEP = timedelta(milliseconds=100)  # 200,000 records span five and a half hours

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


class Record(NamedTuple):
    """One Kafka record.

    Attributes:
        value: None is a tombstone.
        partition: None leaves the choice to the client's partitioner (by key).
        timestamp_ms: Kafka's own timestamp, epoch milliseconds; None is the time of sending. A past one
            is subject to the topic's retention, and one over an hour ahead is refused by the broker.
        fault: None for an ordinary record, else `late`, `duplicate`, `future` or `malformed/<kind>`.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The share of records, each from 0 to 1 and together at most 1, that has each fault.

    Attributes:
        late: the event time lies behind the watermark's delay.
        duplicate: a copy of a record sent shortly before, byte for byte.
        malformed: the value cannot be decoded.
        future: the event time lies days ahead.

    Raises:
        ProjectError: a share is outside [0, 1], or their sum is above 1.
    """

    late: float = 0.0
    duplicate: float = 0.0
    malformed: float = 0.0
    future: float = 0.0

    def __post_init__(self) -> None:
        for share in fields(self):
            value = getattr(self, share.name)
            if not 0 <= value <= 1:  # refuses NaN too
                raise ProjectError(f"faults: {share.name} is {value}; give a fraction from 0 to 1")
        if self.total > 1 + 1e-9:
            raise ProjectError(f"faults: the fractions add up to {self.total:g}; lower them to 1 in all")

    @property
    def total(self) -> float:
        return self.late + self.duplicate + self.malformed + self.future


@dataclass(slots=True)
class Ledger:
    """What was produced: records in all, and of them by fault label."""

    produced: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        self.produced += 1
        if record.fault is not None:
            self.faults[record.fault] += 1

    @property
    def malformed(self) -> dict[str, int]:
        """The malformed records by kind."""
        kinds = {
            k.removeprefix("malformed/"): n for k, n in self.faults.items() if k.startswith("malformed/")
        }
        return dict(sorted(kinds.items()))

    @property
    def well_formed(self) -> int:
        return self.produced - sum(self.malformed.values())

    def as_dict(self) -> dict[str, Any]:
        plain = {name: self.faults[name] for name in ("late", "duplicate", "future")}
        counts = {"produced": self.produced, "well_formed": self.well_formed, **plain}
        return {**counts, "malformed": self.malformed}


class Generator(Protocol):
    """What `generators/NAME.py` offers; the module's docstring says what each name means."""

    topics: Sequence[Topic]

    def records(self, *, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]: ...


def load_generator(project: Path, name: str) -> Generator:
    """The generator in `<project>/generators/<name>.py`.

    Raises:
        ProjectError: there is none of that name, its file fails, or it lacks a name it must offer.
    """
    folder = project / "generators"
    known = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    if name not in known:
        raise ProjectError(f"{folder}: no generator '{name}'; known: {', '.join(known) or 'none'}")
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"headwater_generators_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise ProjectError(f"{path}: failed to load: {type(e).__name__}: {e}; mend the file") from e
    for offered in ("topics", "records"):
        if not hasattr(module, offered):
            raise ProjectError(f"{path}: defines no '{offered}'; a generator offers `topics` and `records`")
    return cast(Generator, module)


def event_clock(*, rate: float | None, start: datetime | None) -> Iterator[int]:
    """The clock of a run: the wall clock when it is paced and no start is given, else a stepped one."""
    if rate and start is None:
        return wall_clock()
    return stepped(start or DEFAULT_START)


def stepped(start: datetime = DEFAULT_START, step: timedelta = DEFAULT_STEP) -> Iterator[int]:
    """Epoch milliseconds from `start` on, `step` apart; a start without a zone is in UTC."""
    aware = start if start.tzinfo else start.replace(tzinfo=UTC)
    millisecond = timedelta(milliseconds=1)
    return count_from((aware - datetime(1970, 1, 1, tzinfo=UTC)) // millisecond, step // millisecond)


def wall_clock() -> Iterator[int]:
    """The present, in epoch milliseconds, each time it is asked."""
    while True:
        yield time.time_ns() // 1_000_000


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

    @property
    def acknowledged(self) -> int:
        return max(0, self._ledger.produced - len(self._producer) - len(self._failures))

    def run(
        self, records: Iterator[Record], *, rate: float | None, count: int | None, stop: Callable[[], bool]
    ) -> Sent:
        if (rate or 0) < 0 or (count or 0) < 0:
            raise ProjectError(f"rate {rate}, count {count}: neither can be negative")
        begin = time.monotonic()
        try:
            self._send_all(records, rate or None, sys.maxsize if count is None else count, stop)
            while self._producer.flush(LONGEST_PAUSE):
                self._raise_failures()
            self._raise_failures()
        except KafkaException as e:
            raise BrokerError(f"broker {self._servers}: {e.args[0]}; is it up, with room on disk?") from e
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
        self._raise_failures()

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append((message.topic() or "?", error))

    def _raise_failures(self) -> None:
        if self._failures:
            self._producer.purge()
            topic, error = self._failures[0]
            n = len(self._failures)
            raise BrokerError(
                f"topic {topic}: {n} record(s) not delivered to {self._servers}: {error.str()}; "
                "check the broker's log and the topic's settings, then run again"
            )
