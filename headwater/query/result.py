"""The result of a query, and how it is written: a table to read, JSON or CSV to pass on."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TextIO

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headwater.common import listings
from headwater.common.values import iso, plain

Format = Literal["table", "json", "csv"]

SHOWN = 1_000  # rows of a printed table; json and csv have all
RECORDS = 20  # rows at most that are printed one below the other where the table is too wide


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
    shown, count = result.rows[:SHOWN], len(result.rows)
    right = [
        at
        for at in range(len(result.columns))
        if shown and all(row[at] is None or _is_number(row[at]) for row in shown)
    ]
    table = listings.table([escape(name) for name in result.columns], right=right)
    for row in shown:
        table.add_row(*(_cell(value) for value in row))
    end = f"{count:,} row{'' if count == 1 else 's'}"
    if count > SHOWN:
        end = f"{SHOWN:,} of {end}; add LIMIT, or --format csv for all"
    parts = [table] if len(shown) > RECORDS or listings.fits(table, out) else _records(result)
    listings.show([*parts, Text(end, style="dim")], out)


def _records(result: Result) -> list[RenderableType]:
    """Each row by itself, a line for each column: for a few wide rows."""
    parts: list[RenderableType] = []
    for row in result.rows:
        record = Table.grid(padding=(0, 3, 0, 0))
        for name, value in zip(result.columns, row, strict=True):
            record.add_row(Text(name, style="bold"), _cell(value))
        parts += [record, ""]
    return parts


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, datetime):
        return Text(iso(value).replace("T", " "))
    if isinstance(value, bytes):
        try:
            return Text(value.decode())
        except UnicodeDecodeError:
            return Text("0x" + value.hex())
    if isinstance(value, float):
        return Text(str(plain(value)))
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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
