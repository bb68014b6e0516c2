"""A generator's loop: events as JSON records, with faults among them at the shares that are asked for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from zlib import crc32

from headwater.connectors.produce.records import Faults, Record

RECENT = 64  # a duplicate repeats one of so many records before it
_KINDS = ("late", "future", "duplicate", "malformed", "invalid")
Draw = Callable[[], float]  # the next random number in [0, 1)
Fields = dict[str, Any]


@dataclass(frozen=True)
class Events:
    """What a system's events are.

    Attributes:
        topic: where they go; `partitions`: of it.
        key: the field whose text is a record's key, and decides its partition.
        time: the field of event time (epoch milliseconds, UTC).
        draw: the next event, from random numbers and the instant at which it is produced.
        malformed: {kind → what becomes of the value of a good record}, so that it can't be decoded.
        invalid: {kind → what becomes of the fields of a good record}, so that a rule holds it back.
        late: how far behind the clock late events lie (milliseconds); `future`: how far ahead.
    """

    topic: str
    partitions: int
    key: str
    time: str
    draw: Callable[[Draw, int], Fields]
    malformed: Mapping[str, Callable[[bytes], bytes | None]]
    invalid: Mapping[str, Callable[[Fields], Fields]]
    late: tuple[int, int]
    future: tuple[int, int] = (86_400_000, 7 * 86_400_000)

    def records(self, *, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
        """Records without end; `headwater.connectors.produce` says what the arguments mean and what is
        promised.

        Raises:
            ProjectError: the faults of each kind add up to more than 1.
        """
        return self._records(
            seed, faults.spread(malformed=len(self.malformed), invalid=len(self.invalid)), clock
        )

    def _records(self, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
        draw = random.Random(seed).random
        malformed, invalid = cycle(self.malformed), cycle(self.invalid)
        recent: list[Record] = []
        for now in clock:
            chance, event, fault = draw(), self.draw(draw, now), None
            for kind in _KINDS:
                share = getattr(faults, kind)
                if chance < share:
                    fault = kind
                    break
                chance -= share
            if fault == "duplicate":
                if recent:
                    yield recent[int(draw() * len(recent))]._replace(fault="duplicate")
                    continue
                fault = None
            if fault in ("late", "future"):
                low, high = self.late if fault == "late" else self.future
                event[self.time] += (-1 if fault == "late" else 1) * (low + int(draw() * (high - low)))
            if fault == "invalid":
                kind = next(invalid)
                event, fault = self.invalid[kind](event), f"invalid/{kind}"
            value: bytes | None = json.dumps(event, separators=(",", ":")).encode()
            key = str(event.get(self.key)).encode()
            if fault == "malformed":
                assert value is not None
                kind = next(malformed)
                value, fault = self.malformed[kind](value), f"malformed/{kind}"
            record = Record(self.topic, key, value, crc32(key) % self.partitions, None, fault)
            if fault in (None, "late"):
                recent = [*recent[-RECENT + 1 :], record]
            yield record


def reached(rows: Iterable[tuple[int | None, int]]) -> Iterator[tuple[int, int]]:
    """By each row, as its partition has them in order: its event time, and the greatest of its partition.

    Args:
        rows: partition and event time of each.
    """
    most: dict[int | None, int] = {}
    for partition, time in rows:
        most[partition] = max(time, most.get(partition, time))
        yield time, most[partition]


MALFORMED: Mapping[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda value: value[: len(value) // 2],
    "not_utf8": lambda value: value[:-1] + b',"note":"\xff"}',
    "array": lambda value: b"[" + value + b"]",
    "no_value": lambda value: None,
}
