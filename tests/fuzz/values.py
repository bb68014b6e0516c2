"""What records hold: columns of each kind, values at their edges, and bytes that are no records.

A row is {column → value} as JSON has it: decimals, days and times (UTC) are texts. A column that is left out
is NULL.
"""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

COLUMNS = {  # of each silver table
    "k": "STRING",
    "j": "INT",
    "n": "BIGINT",
    "i": "INT",
    "t": "TINYINT",
    "x": "DOUBLE",
    "f": "FLOAT",
    "d": "DECIMAL(12,2)",
    "w": "DECIMAL(38,10)",
    "s": "STRING",
    "ok": "BOOLEAN",
    "dy": "DATE",
    "ts": "TIMESTAMP",
}
ODD = "odd"  # a field that says what JSON can't: which x and f are not finite
DDL = ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, ODD: "STRING"}.items())
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MOST = 2**63 - 1
WIDEST = f"{'9' * 26}.{'9' * 10}"  # a hundred of them still fit DuckDB's sum, of 128 bits
NOW = datetime.fromisoformat("2026-01-01T12:00:00Z")  # where the clock of a case begins
EPOCH = int(NOW.timestamp()) - 3600  # seconds, a whole number of minutes

_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "DECIMAL(12,2)": pa.decimal128(12, 2),
    "DECIMAL(38,10)": pa.decimal128(38, 10),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
PLACE = {"topic": pa.string(), "part": pa.int32(), "off": pa.int64()}
CAME = {"came": pa.timestamp("us", "UTC")}  # when a record was read
SENT = {"sent": pa.timestamp("us", "UTC"), "tomb": pa.bool_()}  # Kafka's time of it; whether it had no value
SCHEMA = pa.schema(
    [*((name, _ARROW[kind]) for name, kind in COLUMNS.items()), *{**PLACE, **CAME, **SENT}.items()]
)

_TEXTS = ["", "a", "b", "B", "é", "\U0001f600", "ü'\"\\", "a" * 50, "\u0000", " ", "NaN"]
_EDGES: dict[str, list[Any]] = {
    "k": ["", "é", "A"],
    "j": [2**31 - 1, -(2**31)],
    "n": [MOST, -MOST - 1, 2**53 + 1, 0],
    "i": [2**31 - 1, -(2**31), 0],
    "t": [127, -128],
    "x": [-0.0, 0.0, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 0.1],
    "f": [-0.0, 3.4028234663852886e38, 1e-30],
    "d": ["9999999999.99", "-9999999999.99", "0.00", "0.01"],
    "w": [WIDEST, f"-{WIDEST}", "0.0000000001"],
    "s": _TEXTS,
    "dy": ["0001-01-01", "9999-12-31", "1582-10-10", "1970-01-01"],
    "ts": [
        "0001-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.999999Z",
        "1969-12-31T23:59:59.999999Z",
        "1582-10-10T00:00:00.000000Z",
    ],
}
MALFORMED: list[bytes | None] = [
    None,
    b"",
    b"{",
    b"[]",
    b"null",
    b"{} {}",
    b"\xff",
    b'{"s": "\xc3"}',
    b'{"n": "x"}',
    b'{"n": 9223372036854775808}',
    b'{"n": 1.5}',
    b'{"t": 128}',
    b'{"d": 1.234}',
    b'{"d": 10000000000}',
    b'{"n": 1, "n": 2}',
    b'{"x": NaN}',
    b'{"x": 1e999}',
    b'{"s": 1}',
    b'{"ok": 1}',
    b'{"dy": "2026-02-30"}',
    b'{"ts": 5}',
]


def drawn(draw: random.Random, nasty: float, second: float, spread: float) -> Row:
    """A row.

    Args:
        draw: what it is drawn from.
        nasty: how often a value is one at the edge of its type.
        second: its event time, seconds after `EPOCH`, give or take `spread`.
    """
    at = EPOCH + second + draw.choice((0.0, -1.0)) * spread * draw.random()
    plain: Row = {
        "k": draw.choice("aab"),
        "j": draw.randrange(2),
        "n": draw.randrange(-5, 20),
        "i": draw.randrange(-5, 20),
        "t": draw.randrange(-3, 4),
        "x": draw.randrange(-40, 41) / 4,
        "f": draw.randrange(-8, 9) / 4,
        "d": f"{draw.randrange(-500, 500) / 100:.2f}",
        "w": f"{draw.randrange(-500, 500) / 100:.10f}",
        "s": draw.choice("pqr"),
        "ok": draw.random() < 0.5,
        "dy": f"2026-01-0{draw.randrange(1, 4)}",
        "ts": _time(round(at * 4) * 250_000),
    }
    row = {name: value for name, value in plain.items() if draw.random() > 0.06}
    for name in plain:
        if draw.random() < (nasty if name != "ts" else nasty / 4):
            row[name] = draw.choice([None, *_EDGES.get(name, [])])
    if draw.random() < nasty:
        row[ODD] = draw.choice([*NOT_FINITE, "none"])
    if draw.random() < 0.03:
        row["more"] = {"than": [1, "was declared"]}
    return row


def json_of(row: Row) -> bytes:
    """The record of a row: numbers with every digit."""
    texts = {name: json.dumps(value) for name, value in row.items()}
    texts |= {name: str(row[name]) for name in ("d", "w") if row.get(name) is not None}
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}").encode()


def time_of(second: float) -> datetime:
    """A time, seconds after `EPOCH`."""
    return datetime.fromtimestamp(EPOCH + second, UTC)


def typed(row: Row, place: Row) -> Row:
    """The row that silver makes of it: columns of `SCHEMA`.

    Args:
        row: what the record holds.
        place: where it was and when, and whether it is a tombstone: the columns that are none of `COLUMNS`.
    """
    made = {name: row.get(name) for name in COLUMNS}
    odd = NOT_FINITE.get(row.get(ODD) or "")
    if odd is not None:
        made["x"] = made["f"] = odd
    for name, parse in (("d", Decimal), ("w", Decimal), ("dy", date.fromisoformat)):
        made[name] = None if made[name] is None else parse(made[name])
    made["ts"] = None if made["ts"] is None else datetime.fromisoformat(made["ts"])
    return {**made, **place}


def _time(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
