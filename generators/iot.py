"""CPU metrics of six hosts with five cores each, and the right answers in plain Python.

Topic `iot-data-input`: {hostname, cpu, usage in percent 0-100, occurred_at in epoch ms UTC}, keyed by
hostname. About 5% of the readings lie above 90: most of those come from one core at a time, which runs
hot for ten minutes. One reading in ten occurred up to 2 s before it was produced, so event times are
always a little out of order, within the watermark's 10 s.

Unless a start or a rate is given, the first record is produced at 2026-01-01T00:00:00Z and each next one
100 ms later (`headwater.produce`: DEFAULT_START, DEFAULT_STEP). Kafka's own timestamp is the time of
sending, so that the topic's retention spares a history that begins long ago.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import cycle
from typing import NamedTuple
from zlib import crc32

from headwater.produce import Faults, Record, Topic

TOPIC = "iot-data-input"
HOSTS = ("doc", "dopey", "happy", "sneezy", "grumpy", "bashful")
CPUS = ("cpu1", "cpu2", "cpu3", "cpu4", "cpu5")
WINDOW_MS = 300_000

topics = [Topic(TOPIC, partitions=4)]

SPELL_MS = 600_000  # how long one core runs hot
JITTER_SHARE, JITTER_MS = 0.1, 2_000
LATE_MS = (13_000, 1_800_000)  # the delay is 10 s; the rest outweighs the jitter of the rows before
FUTURE_MS = (86_400_000, 7 * 86_400_000)
RECENT = 64  # a duplicate repeats one of so many records before it

# Readings are drawn from these: percent with two decimals, as JSON.
NORMAL = [f"{90 * (i / 9_830) ** 1.5:.2f}".encode() for i in range(9_831)]
NORMAL += [f"{90 + i / 17:.2f}".encode() for i in range(1, 171)]
HOT = [f"{90 + i / 100:.2f}".encode() for i in range(1, 1_001)]

SERIES = [(host.encode(), cpu.encode(), crc32(host.encode()) % 4) for host in HOSTS for cpu in CPUS]


def records(*, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
    """Readings without end; `headwater.produce` says what the arguments mean and what is promised."""
    draw = random.Random(seed).random
    make = Record._make
    series = [(host, b'{"hostname":"%b","cpu":"%b","usage":' % (host, cpu), p) for host, cpu, p in SERIES]
    many = len(series)
    kinds = cycle(MALFORMED)
    recent: list[Record | None] = [None] * RECENT
    made = 0  # records put into `recent`
    spell_end = hot = -1

    late = faults.late
    future = late + faults.future
    duplicate = future + faults.duplicate
    malformed = duplicate + faults.malformed
    unusual = malformed + (1 - malformed) * JITTER_SHARE

    for now in clock:
        if now >= spell_end:
            spell_end = now - now % SPELL_MS + SPELL_MS
            hot = crc32(b"%d:%d" % (seed, spell_end)) % len(series)
        chance = draw()
        chosen = int(draw() * many)
        host, head, partition = series[chosen]
        level = draw()
        usage = HOT[int(level * 1_000)] if chosen == hot else NORMAL[int(level * 10_001)]
        occurred_at, fault = now, None
        if chance < unusual:
            if chance < late:
                occurred_at, fault = now - _between(LATE_MS, draw()), "late"
            elif chance < future:
                occurred_at, fault = now + _between(FUTURE_MS, draw()), "future"
            elif chance < duplicate:
                again = recent[(made - 1 - int(draw() * min(made, RECENT))) % RECENT]
                if again is not None:
                    yield again._replace(fault="duplicate")
                    continue
            elif chance < malformed:
                kind = next(kinds)
                value = MALFORMED[kind](host, SERIES[chosen][1], usage, now)
                yield Record(TOPIC, host, value, partition, None, f"malformed/{kind}")
                continue
            else:
                occurred_at = now - int(draw() * JITTER_MS)
        value = b'%b%b,"occurred_at":%d}' % (head, usage, occurred_at)
        record = make((TOPIC, host, value, partition, None, fault))
        recent[made % RECENT] = record
        made += 1
        yield record


def _between(bounds: tuple[int, int], level: float) -> int:
    low, high = bounds
    return low + int(level * (high - low))


def _reading(host: bytes, cpu: bytes, usage: bytes, occurred_at: int | bytes) -> bytes:
    at = occurred_at if isinstance(occurred_at, bytes) else b"%d" % occurred_at
    return b'{"hostname":"%b","cpu":"%b","usage":%b,"occurred_at":%b}' % (host, cpu, usage, at)


# Every way to be malformed, taken in turn; each gets what a good record would have been made of.
MALFORMED: dict[str, Callable[[bytes, bytes, bytes, int], bytes | None]] = {
    "truncated": lambda h, c, u, t: _reading(h, c, u, t)[:-20],
    "invalid_utf8": lambda h, c, u, t: _reading(h + b"\xc3\x28\xff", c, u, t),
    "usage_type": lambda h, c, u, t: _reading(h, c, b'"high"', t),
    "hostname_type": lambda h, c, u, t: _reading(h, c, u, t).replace(b'"%b"' % h, b"42", 1),
    "overflow": lambda h, c, u, t: _reading(h, c, u, b"99999999999999999999"),
    "nan": lambda h, c, u, t: _reading(h, c, b"NaN", t),
    "infinity": lambda h, c, u, t: _reading(h, c, b"-Infinity", t),
    "duplicate_field": lambda h, c, u, t: _reading(h, c, b'1.0,"usage":%b' % u, t),
    "empty": lambda h, c, u, t: b"",
    "null": lambda h, c, u, t: None,
    "array": lambda h, c, u, t: b"[%b]" % _reading(h, c, u, t),
    "trailing": lambda h, c, u, t: _reading(h, c, u, t) + b" }garbage",
    "deep": lambda h, c, u, t: _reading(h, c, b"[" * 10_000 + b"]" * 10_000, t),
}


# The oracle: what the pipeline must make of these records.


class Reading(NamedTuple):
    hostname: str
    cpu: str
    usage: float  # percent
    occurred_at: int  # epoch milliseconds, UTC


class Usage(NamedTuple):
    avg: float  # percent
    max: float  # percent
    n: int


class Alert(NamedTuple):
    hostname: str
    time_ltz: str  # UTC, "2022-01-21 11:05:23.319"
    cpu: str
    usage: float  # percent


def readings(records: Iterable[Record]) -> Iterator[Reading]:
    """The well-formed readings in the order produced: late, future-dated and repeated ones too."""
    for record in records:
        if record.fault is None or not record.fault.startswith("malformed/"):
            assert record.value is not None
            row = json.loads(record.value)
            yield Reading(row["hostname"], row["cpu"], row["usage"], row["occurred_at"])


def cpu_usage_5m(records: Iterable[Record]) -> dict[tuple[int, str, str], Usage]:
    """Average and maximum per (window start in epoch ms UTC, hostname, cpu), over all well-formed readings.

    Windows are 5 minutes, tumbling; averages are exact to 1e-9 relative.
    """
    sums: dict[tuple[int, str, str], list[float]] = {}
    for hostname, cpu, usage, occurred_at in readings(records):
        key = (occurred_at - occurred_at % WINDOW_MS, hostname, cpu)
        entry = sums.setdefault(key, [0.0, usage, 0])
        entry[0] += usage
        entry[1] = max(entry[1], usage)
        entry[2] += 1
    return {key: Usage(total / n, top, int(n)) for key, (total, top, n) in sums.items()}


def alerts(records: Iterable[Record], threshold: float = 90.0) -> list[Alert]:
    """One alert per well-formed reading strictly above the threshold in percent, in the order produced."""
    return [
        Alert(hostname, _time_ltz(occurred_at), cpu, usage)
        for hostname, cpu, usage, occurred_at in readings(records)
        if usage > threshold
    ]


def _time_ltz(occurred_at: int) -> str:
    seconds, milliseconds = divmod(occurred_at, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{milliseconds:03d}"
