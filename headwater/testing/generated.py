"""What the generators of a project would send to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zlib import crc32

from headwater.connectors.produce import Faults, Ledger, load_generator, stepped
from headwater.project.definitions import Topic
from headwater.testing.records import Record


def generated(
    root: Path,
    name: str,
    count: int,
    *,
    seed: int,
    faults: Faults,
    start: datetime,
    raw: Callable[[str], Topic],
) -> tuple[dict[str, list[Record]], Ledger]:
    """The first records of a generator by their topics, in order, and what is wrong with how many of them.

    Args:
        root: the project.
        name: of the generator.
        count: so many records.
        seed: the same seed gives the same records.
        faults: the shares of bad ones.
        start: the event time of the first one.
        raw: finds the definition of a topic by its name.

    Raises:
        ProjectError: there is no such generator.
    """
    made = load_generator(root, name).records(seed=seed, faults=faults, clock=stepped(start))
    found: dict[str, list[Record]] = {}
    ledger = Ledger()
    for record in islice(made, count):
        ledger.add(record)
        partition, at = record.partition, record.timestamp_ms
        if partition is None:
            partition = crc32(record.key or b"") % raw(record.topic).partitions
        when = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        sent = Record(record.value, record.key, partition, timestamp=when)
        found.setdefault(record.topic, []).append(sent)
    return found, ledger
