"""The result of a query, and how it is written: a table to read, JSON or CSV to pass on."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Format = Literal["table", "json", "csv"]

SHOWN = 1_000  # rows of a printed table; json and csv have all


@dataclass(frozen=True)
class Result:
    """Rows as Python values; timestamps are aware (UTC), those without a zone in the data are naive."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def write(result: Result, form: Format, out: TextIO) -> None:
    """Write the result.

    `table`: NULL dim, numbers to the right, times in UTC, binary as text where it is UTF-8.
    `json`: one array of objects; timestamps in ISO 8601 with Z, NaN and ±Infinity as the strings "NaN",
    "Infinity", "-Infinity" (as Spark writes them), decimals as strings (exact), binary in base64,
    intervals in seconds. `csv`: the same values with a header, NULL empty, nested values as JSON.
    """
    {"table": _table, "json": _json, "csv": _csv}[form](result, out)


def _table(result: Result, out: TextIO) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown = result.rows[:SHOWN]
    for at, name in enumerate(result.columns):
        numbers = all(_is_number(row[at]) for row in shown if row[at] is not None)
        table.add_column(Text(name), justify="right" if numbers and shown else "left", overflow="fold")
    for row in shown:
        table.add_row(*(_cell(value) for value in row))
    console = Console(file=out)
    if not console.is_terminal:
        console = Console(file=out, width=100_000)
    console.print(table)
    count = len(result.rows)
    if count > SHOWN:
        console.print(f"{SHOWN:,} of {count:,} rows; add LIMIT, or --format csv for all", style="dim")
    else:
        console.print(f"{count:,} row{'' if count == 1 else 's'}", style="dim")


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, datetime):
        clock = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        text = str(clock)
        if clock.microsecond:
            text = text.rstrip("0")
        return Text(text + ("Z" if value.tzinfo else ""))
    if isinstance(value, bytes):
        try:
            return Text(value.decode())
        except UnicodeDecodeError:
            return Text("0x" + value.hex())
    if isinstance(value, (dict, list, tuple)):
        return Text(json.dumps(plain(value), ensure_ascii=False))
    if isinstance(value, bool):
        return Text(str(value).lower())
    return Text(str(value))


def _json(result: Result, out: TextIO) -> None:
    lines = (
        json.dumps(dict(zip(result.columns, map(plain, row), strict=True)), ensure_ascii=False)
        for row in result.rows
    )
    out.write("[" + ",\n ".join(lines) + "]\n")


def _csv(result: Result, out: TextIO) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(result.columns)
    for row in result.rows:
        writer.writerow([_field(plain(value)) for value in row])
    out.write(text.getvalue())


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def plain(value: Any) -> Any:
    """The value as JSON has it; see `write`."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
