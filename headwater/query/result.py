"""The result of a query, and how it is written: a table to read, JSON or CSV to pass on."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import count, islice
from typing import Any, Literal, TextIO

from rich.text import Text

from headwater.common import listings
from headwater.common.values import iso, plain

Format = Literal["table", "json", "csv"]

SHOWN = 1_000  # rows of a printed table; json and csv have all
DIGITS = 8  # of a double, where a table is wider than the terminal


@dataclass(frozen=True)
class Result:
    """Rows as Python values; timestamps are aware (UTC), those without a zone in the data are naive."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Rows:
    """The rows of a result as they are fetched, once; values as a `Result` has them."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]

    def all(self) -> Result:
        """Those that were not fetched yet."""
        return Result(self.columns, list(self.rows))


def write(result: Result | Rows, form: Format, out: TextIO, *, seconds: float | None = None) -> None:
    """Write the result.

    `table`: NULL dim, numbers to the right, times in UTC, binary as text where it is UTF-8, each
    value in one line; a terminal that is too narrow cuts long ones, see `headwater.common.listings`.
    `json`: one array of objects; timestamps in ISO 8601 with Z, NaN and ±Infinity as the strings "NaN",
    "Infinity", "-Infinity" (as Spark writes them), decimals as strings (exact), binary in base64,
    intervals in seconds. `csv`: the same values with a header, NULL empty, nested values as JSON.

    Args:
        result: what is written.
        form: how.
        out: where.
        seconds: that it took, told below a table; None: not told.
    """
    if form == "table":
        _table(result, out, "" if seconds is None else f", {seconds:,.2f} s")
    else:
        {"json": _json, "csv": _csv}[form](result, out)


def _table(result: Result | Rows, out: TextIO, took: str) -> None:
    rows = iter(result.rows)
    shown = list(islice(rows, SHOWN))
    number = len(shown) + sum(1 for _ in rows)

    def all_are(test: Callable[[Any], bool]) -> list[int]:
        """The places of the columns whose values, as far as there are some, are all such."""
        places = range(len(result.columns)) if shown else ()
        return [at for at in places if all(row[at] is None or test(row[at]) for row in shown)]

    right, times = all_are(_is_number), all_are(lambda value: isinstance(value, datetime))

    def laid(digits: int | None) -> listings.Listing:
        table = listings.Listing(result.columns, right=right, whole=times)
        for row in shown:
            table.row(*(_cell(value, digits) for value in row))
        return table

    table = laid(None)
    if is_rounded := not table.fits(out) and any(isinstance(value, float) for row in shown for value in row):
        table = laid(DIGITS)
    end = f"{number:,} row{'' if number == 1 else 's'}{took}"
    if number > SHOWN:
        end = f"{SHOWN:,} of {end}; add LIMIT, or --format csv for all"
    elif table.cuts(out) or is_rounded:
        what = "what ends in …" if table.cuts(out) else "what is rounded"
        end = f"{end}; {what} is whole with --format json"
    listings.show([table, Text(end, style="dim")], out)


def _cell(value: Any, digits: int | None) -> Text:
    """A value; of a double so many digits, or all."""
    if isinstance(value, float) and digits and math.isfinite(value):
        return Text(f"{value:.{digits}g}")
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, datetime):
        return Text(iso(value).replace("T", " "))
    if isinstance(value, bytes):
        try:
            return Text(_line(value.decode()))
        except UnicodeDecodeError:
            return Text("0x" + value.hex())
    if isinstance(value, (float, Decimal)):
        return Text(str(plain(value)))
    if isinstance(value, (dict, list, tuple)):
        return Text(json.dumps(plain(value), ensure_ascii=False))
    if isinstance(value, bool):
        return Text(str(value).lower())
    return Text(_line(str(value)))


def _line(text: str) -> str:
    """A text in one line, in which nothing moves a terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _json(result: Result | Rows, out: TextIO) -> None:
    names, before = _apart(result.columns), "["
    for row in result.rows:
        out.write(before + json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False))
        before = ",\n "
    out.write("[]\n" if before == "[" else "]\n")


def _apart(columns: Sequence[str]) -> list[str]:
    """Names for columns, each once, as DuckDB calls those of a subquery: of two `id` the second is `id_1`."""
    found = list[str]()
    for column in columns:
        others = (name for at in count(1) if (name := f"{column}_{at}") not in {*found, *columns})
        found.append(next(others) if column in found else column)
    return found


def _csv(result: Result | Rows, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.columns)
    for row in result.rows:
        writer.writerow([_field(plain(value)) for value in row])


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
