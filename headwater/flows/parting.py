"""Where the files of a commit may be parted between two batches.

Files need not stand in the order of their records: Spark may have packed or shuffled rows as it liked. If
a batch ended between two that stand the other way round, those of the next one would come after younger
records, and so too late. So a commit is parted only where all records of a partition of Kafka that lie before
came earlier than those that lie after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.common import scratch
from headwater.connectors.decode import SOURCE
from headwater.storage.places import KEYS, PLACE
from headwater.storage.scan import FILE, scan

_PLACES = pa.schema(list(PLACE.items()))
_SOURCES = pa.schema([(SOURCE, pa.struct(list(PLACE.items())))])


def parting(columns: StructType) -> Callable[[Sequence[str]], Collection[int]]:
    """What says before which files of a commit it may be parted, by their numbers.

    Args:
        columns: of the table. Where they don't say from which records its rows came, any file will do.
    """
    names = columns.fieldNames()
    if SOURCE in names:
        return lambda files: _parted(tuple(files), _SOURCES)
    if {*KEYS} <= {*names}:
        return lambda files: _parted(tuple(files), _PLACES)
    return lambda files: range(len(files))


@lru_cache(maxsize=16)  # of a large commit it is asked for each batch
def _parted(files: tuple[str, ...], columns: pa.Schema) -> frozenset[int]:
    spans = _spans(files, columns)
    least: list[dict[str, int]] = [
        {}
    ]  # {partition → its first offset in a file and those after it}, from the end
    for span in reversed(spans):
        firsts = {partition: first for partition, (first, _) in span.items()}
        least.append({**least[-1], **{p: min(at, least[-1].get(p, at)) for p, at in firsts.items()}})
    found, greatest = set[int](), dict[str, int]()
    for number, (span, after) in enumerate(zip(spans, reversed(least), strict=False)):
        if all(last < after.get(partition, last + 1) for partition, last in greatest.items()):
            found.add(number)
        greatest |= {p: max(last, greatest.get(p, last)) for p, (_, last) in span.items()}
    return frozenset(found)


def _spans(files: tuple[str, ...], columns: pa.Schema) -> list[dict[str, tuple[int, int]]]:
    """Of each file, {partition → the first and the last offset of its records in it}."""
    of = f"{SOURCE}." if columns is _SOURCES else ""
    partition = " || '/' || ".join(f'{of}"{part}"' for part in KEYS[:-1])
    offset = f'{of}"{KEYS[-1]}"'
    with scratch.connection(scratch.MANY) as connection:
        rows = scan(connection, columns, files, place=True)
        found = connection.execute(
            f"SELECT {FILE}, {partition} AS partition, min({offset}), max({offset}) FROM {rows.sql} "
            "WHERE partition IS NOT NULL GROUP BY ALL",
            dict(rows.parameters),
        ).fetchall()
    spans: dict[str, dict[str, tuple[int, int]]] = {file: {} for file in files}
    for file, of_partition, first, last in found:
        spans[file][of_partition] = (first, last)
    return list(spans.values())
