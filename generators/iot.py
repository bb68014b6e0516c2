"""CPU metrics of six hosts with five cores each, and the right answers in plain Python.

Topic `iot-data-input`: {hostname, cpu, usage in percent 0-100, occurred_at in epoch ms UTC}, keyed by
hostname. About 5% of the readings lie above 90: most of those come from one core at a time, which runs
hot for ten minutes. One reading in ten occurred up to 2 s before it was produced, so event times are
always a little out of order, within the watermark's 10 s.

Unless a start or a rate is given, the first record is produced at 2026-01-01T00:00:00Z and each next one
100 ms later (`headwater.connectors.produce`: DEFAULT_START, DEFAULT_STEP). Kafka's own timestamp is the time
of sending, so that the topic's retention spares a history that begins long ago.

MALFORMED are the records that cannot be decoded, INVALID those that break an expectation of
`quality/silver.cpu_metrics.json`. With the wall clock `future` records lie beyond any reader's clock too;
with the stepped one they only lie ahead of the others, and `invalid/year_2099` is what lies beyond.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import cycle
from math import inf
from typing import NamedTuple
from zlib import crc32

from headwater.connectors.produce import Faults, Record, Topic
from headwater.connectors.produce.events import reached

TOPIC = "iot-data-input"
HOSTS = ("doc", "dopey", "happy", "sneezy", "grumpy", "bashful")
CPUS = ("cpu1", "cpu2", "cpu3", "cpu4", "cpu5")
WINDOW_MS, DELAY_MS = 300_000, 10_000

topics = [Topic(TOPIC, partitions=4)]
shown = "gold.cpu_usage_5m ORDER BY window_start DESC, hostname, cpu"

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
    """Readings without end; `headwater.connectors.produce` says what the arguments mean and what is promised.

    Raises:
        ProjectError: the faults of each kind add up to more than 1.
    """
    return _records(seed, faults.spread(malformed=len(MALFORMED), invalid=len(INVALID)), clock)


def _records(seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
    draw = random.Random(seed).random
    make = Record._make
    series = [(host, b'{"hostname":"%b","cpu":"%b","usage":' % (host, cpu), p) for host, cpu, p in SERIES]
    many = len(series)
    kinds = cycle(MALFORMED)
    broken = cycle(INVALID)
    recent: list[Record | None] = [None] * RECENT
    made = 0  # records put into `recent`
    spell_end = hot = -1

    late = faults.late
    future = late + faults.future
    duplicate = future + faults.duplicate
    malformed = duplicate + faults.malformed
    invalid = malformed + faults.invalid
    unusual = invalid + (1 - invalid) * JITTER_SHARE

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
            elif chance < invalid:
                kind = next(broken)
                value = INVALID[kind].value(host, SERIES[chosen][1], usage, now)
                yield Record(TOPIC, host, value, partition, None, f"invalid/{kind}")
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


# Host, core, usage and time that a good record would have been made of → the value of a bad one.
Make = Callable[[bytes, bytes, bytes, int], bytes | None]

# Every way to be malformed, taken in turn.
MALFORMED: dict[str, Make] = {
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


class Invalid(NamedTuple):
    """A way to break expectations.

    Attributes:
        value: makes such a record's value.
        rules: every rule that its row fails, in the suite's order.
        kept: whether silver holds the row all the same (its rules only warn).
    """

    value: Make
    rules: tuple[str, ...]
    kept: bool = False


NO_HOSTNAME, NO_CPU, NO_USAGE, NO_TIME, NO_SITE = (
    f"values_to_not_be_null({column})" for column in ("hostname", "cpu", "usage", "event_time", "site")
)
CPU_NAME, USAGE_RANGE = "values_to_match_regex(cpu)", "values_to_be_between(usage)"
YEAR_2099 = 4_070_908_800_000  # its first millisecond

# Every way to be invalid, taken in turn. A row without a host has no site either.
INVALID: dict[str, Invalid] = {
    "no_hostname": Invalid(
        lambda h, c, u, t: _reading(h, c, u, t).replace(b'"%b"' % h, b"null", 1), (NO_HOSTNAME, NO_SITE)
    ),
    "cpu_name": Invalid(lambda h, c, u, t: _reading(h, b"cpu0", u, t), (CPU_NAME,)),
    "no_cpu": Invalid(
        lambda h, c, u, t: b'{"hostname":"%b","usage":%b,"occurred_at":%d}' % (h, u, t), (NO_CPU,)
    ),
    "usage_below": Invalid(lambda h, c, u, t: _reading(h, c, b"-%b1" % u, t), (USAGE_RANGE,)),
    "usage_above": Invalid(lambda h, c, u, t: _reading(h, c, b"10%b1" % u, t), (USAGE_RANGE,)),
    "no_usage": Invalid(lambda h, c, u, t: _reading(h, c, b"null", t), (NO_USAGE,), kept=True),
    "before_1970": Invalid(lambda h, c, u, t: _reading(h, c, u, -1 - t), (NO_TIME,)),
    "unknown_host": Invalid(lambda h, c, u, t: _reading(h + b"-new", c, u, t), (NO_SITE,), kept=True),
    "year_2099": Invalid(lambda h, c, u, t: _reading(h, c, u, YEAR_2099 + t % 86_400_000), ("future",)),
}


# The oracle: what the pipeline must make of these records.


def rules(fault: str | None) -> tuple[str, ...]:
    """The rules that a record with this label fails, in the suite's order."""
    sort, _, kind = (fault or "").partition("/")
    if sort == "invalid":
        return INVALID[kind].rules
    return ("malformed",) if sort == "malformed" else ()


def kept(fault: str | None) -> bool:
    """Whether silver holds the row of a record with this label; else the quarantine does."""
    sort, _, kind = (fault or "").partition("/")
    return INVALID[kind].kept if sort == "invalid" else sort != "malformed"


def failed(faults: Mapping[str, int]) -> Counter[str]:
    """{rule → rows that fail it}, of a ledger's `faults`: what the batches of silver count."""
    counts: Counter[str] = Counter()
    for fault, n in faults.items():
        counts.update(dict.fromkeys(rules(fault), n))
    return counts


def held(faults: Mapping[str, int]) -> Counter[str]:
    """{rule → rows of the quarantine that name it}, of a ledger's `faults`."""
    return failed({fault: n for fault, n in faults.items() if not kept(fault)})


class Reading(NamedTuple):
    hostname: str | None
    cpu: str | None
    usage: float | None  # percent
    occurred_at: int  # epoch milliseconds, UTC


class Usage(NamedTuple):
    avg: float | None  # percent; None where no reading has a usage
    max: float | None  # percent
    n: int  # readings that have a usage


Window = tuple[int, str | None, str | None]  # its start in epoch ms UTC, hostname, cpu


class Alert(NamedTuple):
    hostname: str | None
    time_ltz: str | None  # UTC, "2022-01-21 11:05:23.319"; None before 1970
    cpu: str | None
    usage: float  # percent


def readings(records: Iterable[Record]) -> Iterator[Reading]:
    """What can be decoded, in the order produced: late, future-dated, repeated and invalid ones too."""
    for record in records:
        if record.fault is None or not record.fault.startswith("malformed/"):
            assert record.value is not None
            row = json.loads(record.value)
            yield Reading(row["hostname"], row.get("cpu"), row["usage"], row["occurred_at"])


def silver(records: Iterable[Record]) -> Iterator[Reading]:
    """The readings that silver holds, in the order produced: those that no rule holds back."""
    return readings(record for record in records if kept(record.fault))


def cpu_usage_5m(records: Iterable[Record]) -> dict[Window, Usage]:
    """Average and maximum per window, over the readings of silver.

    Windows are 5 minutes, tumbling; averages are exact to 1e-9 relative and leave out readings without usage.
    """
    return _usage(silver(records))


def cpu_usage_5m_final(records: Iterable[Record]) -> tuple[dict[Window, Usage], dict[Window, Usage], int]:
    """The windows that are over when all is read, those that are still open, and how many readings are late.

    A reading is late when one of its partition, up to itself, reaches the end of its window and 10 s; a
    window is over when every partition with a reading reaches that.
    """
    held = [record for record in records if kept(record.fault)]
    rows = list(silver(held))
    places = [(record.partition, row.occurred_at) for record, row in zip(held, rows, strict=True)]
    ends = [(time // WINDOW_MS + 1) * WINDOW_MS + DELAY_MS for _, time in places]
    late = [most >= end for (_, most), end in zip(reached(places), ends, strict=True)]
    low = min(max(t for p, t in places if p == one) for one in {p for p, _ in places})
    windows = _usage(row for row, is_late in zip(rows, late, strict=True) if not is_late)
    over = {key for key in windows if key[0] + WINDOW_MS + DELAY_MS <= low}
    return (
        {key: usage for key, usage in windows.items() if key in over},
        {key: usage for key, usage in windows.items() if key not in over},
        sum(late),
    )


def _usage(readings: Iterable[Reading]) -> dict[Window, Usage]:
    groups: dict[Window, list[float]] = {}
    for hostname, cpu, usage, occurred_at in readings:
        # sum, maximum, count
        entry = groups.setdefault((occurred_at - occurred_at % WINDOW_MS, hostname, cpu), [0.0, -inf, 0])
        if usage is not None:
            entry[0] += usage
            entry[1] = max(entry[1], usage)
            entry[2] += 1
    return {
        key: Usage(total / n, top, int(n)) if n else Usage(None, None, 0)
        for key, (total, top, n) in groups.items()
    }


def alerts(records: Iterable[Record], threshold: float = 90.0) -> list[Alert]:
    """One alert per reading strictly above the threshold in percent, in the order produced.

    Alerts do not wait for the expectations: readings that these hold back are among them.
    """
    return [
        Alert(hostname, _time_ltz(occurred_at) if occurred_at >= 0 else None, cpu, usage)
        for hostname, cpu, usage, occurred_at in readings(records)
        if usage is not None and usage > threshold
    ]


def _time_ltz(occurred_at: int) -> str:
    seconds, milliseconds = divmod(occurred_at, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{milliseconds:03d}"
