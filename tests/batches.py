"""Batches of changes, as the tests of sinks write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headwater.connectors.sinks import CHANGE, Changes, Position, Published, Sink

TABLE = "gold.usage"
COLUMNS = pa.schema([("host", pa.string()), ("cpu", pa.int32()), ("usage", pa.float64())])
KEYS = ("host", "cpu")
KINDS = {
    "k": pa.int64(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "f": pa.float32(),
    "d": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "dec": pa.decimal128(38, 10),
    "list": pa.list_(pa.int32()),
}


def published(
    keys: tuple[str, ...] = KEYS, columns: pa.Schema = COLUMNS, id: str = "a", name: str = TABLE
) -> Published:
    """The table whose changes are sent."""
    return Published(f"{name}->here", name, columns, keys, id)


def changes(*versions: list[tuple[Any, ...]], first: int = 1, columns: pa.Schema = COLUMNS) -> Changes:
    """Changes of versions in a row; each is (change, value of each column…)."""
    schema = columns.append(pa.field(CHANGE, pa.string()))
    return Changes(
        [
            (
                Position(1, version, 1_000 * version),
                pa.Table.from_pylist(
                    [dict(zip(schema.names, [*row[1:], row[0]], strict=True)) for row in rows], schema
                ),
            )
            for version, rows in enumerate(versions, start=first)
        ]
    )


def beyond() -> tuple[Published, Changes]:
    """A table and a change of it with a time that Python has not, the first microsecond of the year 10000."""
    columns = pa.schema([("host", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    times = pa.array([0, 253_402_300_800_000_000]).cast(columns.field("at").type)
    rows = pa.table({"host": ["a", "b"], "at": times, CHANGE: ["upsert", "upsert"]})
    return published(("host",), columns), Changes([(Position(1, 1), rows)])


BEYOND = r"^gold\.usage->here: gold\.usage has a row whose at is 10000-01-01 00:00:00\.000000, "


def cut_anyhow(seed: int, opened: Callable[[], tuple[Sink, Position]]) -> dict[Any, Any]:
    """Write versions of which some come twice, and some together with others that the target has already.

    Args:
        seed: of how they are cut.
        opened: a sink of `published()`, and how far its target is.

    Returns:
        {host and cpu → the usage that the target has to hold now}.
    """
    print(f"seed {seed}")
    draw = random.Random(seed)
    versions: list[list[tuple[Any, ...]]] = []
    want: dict[Any, Any] = {}
    for _ in range(40):
        keys = draw.sample([(host, cpu) for host in ("a", "b", None) for cpu in (1, 2, None)], 4)
        rows = [
            (draw.choice(["upsert", "upsert", "delete"]), *key, float(draw.randrange(99))) for key in keys
        ]
        versions.append(rows)
        for change, host, cpu, usage in rows:
            want.pop((host, cpu), None)
            if change == "upsert":
                want[host, cpu] = usage
    sink, at = opened()
    first = 0
    while first < 40:  # some batches come twice, some begin before what the target has
        upto = min(40, first + draw.randrange(1, 9))
        begin = max(0, first - draw.randrange(3))
        sink.write(changes(*versions[begin:upto], first=begin + 1))
        if draw.random() < 0.3:
            sink.close()
            sink, at = opened()
            assert at == Position(1, upto)
        first = upto
    sink.close()
    return want
