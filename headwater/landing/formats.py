"""What is in a file: its records, one after the other, each as bytes.

| format | a record | its value |
|---|---|---|
| `json`, `text` | a line that is not empty | the line's bytes, without its end |
| `csv` | a row (RFC 4180, UTF-8); the first row has the names | a JSON object of texts |
| `parquet` | a row | a JSON object; see `rows_as_json` |

A file may be compressed: `.gz`, `.bz2`, `.lz4`, `.zst`. Rows of CSV and Parquet become JSON, since such a row
says nothing without the names that stand elsewhere in its file; nothing of it is interpreted or rounded.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.definitions import Format
from headwater.errors import ProjectError

FORMATS: tuple[str, ...] = get_args(Format)
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    csv.Error,
    pa.ArrowException,
)  # of what is no such file
BLOCK = 1 << 20  # bytes, or ROWS rows, that are read at a time
ROWS = 10_000
LONGEST = 64 << 20  # bytes of one line
MORE = "_more"  # the field of the values for which a CSV file has no names

csv.field_size_limit(LONGEST)


_ENDINGS: dict[str, Format] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".log": "text",
    ".csv": "csv",
    ".parquet": "parquet",
}
_PACKED = (".gz", ".bz2", ".lz4", ".zst")


def of(paths: Iterable[str]) -> Format:
    """The format that the names of all these files say.

    Raises:
        ProjectError: they say none, or several.
    """
    names = {
        path.name.removesuffix(path.suffix if path.suffix in _PACKED else "") for path in map(Path, paths)
    }
    found = {_ENDINGS.get(Path(name).suffix) for name in names}
    form = next(iter(found))
    if len(found) > 1 or form is None:
        raise ProjectError(f"the names of these files say no one format: say --format {', '.join(FORMATS)}")
    return form


class Reader:
    """The records of one file, in order.

    Args:
        path: the file.
        form: its format.
        skip: how many of its records are known.
    """

    def __init__(self, path: Path, form: Format, skip: int = 0) -> None:
        self._blocks = _READ[form](path)
        self._left: pa.Array = pa.array([], pa.binary())
        self._skip = skip

    def take(self, rows: int, size: int) -> tuple[pa.ChunkedArray, bool]:
        """The next records, and whether the file ends with them.

        Args:
            rows: at most so many.
            size: about so many bytes, which the last of them may exceed.

        Raises:
            UNREADABLE: it is no such file, or is damaged.
        """
        found: list[pa.Array] = []
        ended = False
        while rows > 0 and size > 0 and not (ended := not self._more()):
            block = self._left[:rows]
            self._left = self._left[rows:]
            found.append(block)
            rows -= len(block)
            size -= block.nbytes
        return pa.chunked_array(found, pa.binary()), ended or not self._more()

    def _more(self) -> bool:
        """Whether there is another record; it then is in `_left`."""
        while not len(self._left):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._left = block[self._skip :]
            self._skip -= min(self._skip, len(block))
        return True


def check(path: Path, form: Format) -> None:
    """Read a file to its end.

    Raises:
        UNREADABLE: that can't be done.
    """
    for _ in _batches(path) if form == "parquet" else _READ[form](path):
        pass


def _lines(path: Path) -> Iterator[pa.Array]:
    with pa.input_stream(str(path), compression="detect") as stream:
        rest = b""
        while data := stream.read(BLOCK):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST:
                raise ValueError(f"a line is longer than {LONGEST >> 20} MiB; write each record in its own")
            yield _values(lines)
        yield _values([rest])


def _values(lines: list[bytes]) -> pa.Array:
    whole = (line.removesuffix(b"\r") for line in lines)
    return pa.array([line for line in whole if line], pa.binary())


def _csv(path: Path) -> Iterator[pa.Array]:
    with pa.input_stream(str(path), compression="detect") as stream:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
        names = next(rows, [])
        if len(set(names)) < len(names) or MORE in names:
            raise ValueError(f"its first line names a column twice, or {MORE}: {', '.join(names)}")
        while part := list(islice(rows, ROWS)):
            yield pa.array([_object(names, row) for row in part if row], pa.binary())


def _object(names: list[str], row: list[str]) -> bytes:
    """A row's fields by their names: what is missing is left out, what has no name stands in `MORE`."""
    found: dict[str, Any] = dict(zip(names, row, strict=False))
    if len(row) > len(names):
        found[MORE] = row[len(names) :]
    return json.dumps(found, ensure_ascii=False).encode()


def _parquet(path: Path) -> Iterator[pa.Array]:
    return map(rows_as_json, _batches(path))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield from file.iter_batches(batch_size=ROWS)


_READ: dict[Format, Callable[[Path], Iterator[pa.Array]]] = {
    "json": _lines,
    "text": _lines,
    "csv": _csv,
    "parquet": _parquet,
}


def rows_as_json(rows: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object with a field for each column.

    Numbers have all their digits, decimals too (12.50). Times are ISO 8601 in UTC,
    `2026-01-31T06:00:00.250000Z`; a timestamp without a zone is UTC. Binary values are base64. NaN and
    infinite numbers, which JSON has not, are texts: "NaN". The entries of a map are the fields of an object.

    Raises:
        ValueError: a column of another type.
    """
    keys = [json.dumps(name, ensure_ascii=False) + ":" for name in rows.schema.names]
    texts = [
        [write(value) for value in column.to_pylist()]
        for column, write in zip(rows.columns, map(_writer, rows.schema), strict=True)
    ]
    found = (map("".join, zip(keys, row, strict=True)) for row in zip(*texts, strict=True))
    return pa.array([f"{{{','.join(fields)}}}".encode() for fields in found], pa.binary())


def _writer(field: pa.Field) -> Callable[[Any], str]:
    write = _of_type(field.type, field.name)
    return lambda value: "null" if value is None else write(value)


def _of_type(kind: pa.DataType, name: str) -> Callable[[Any], str]:
    """How a value of a type, which is not NULL, is written as JSON."""
    if pa.types.is_dictionary(kind):
        return _of_type(kind.value_type, name)
    if pa.types.is_struct(kind):
        fields = [(kind.field(at).name, _writer(kind.field(at))) for at in range(kind.num_fields)]
        return lambda value: _braced((key, write(value[key])) for key, write in fields)
    if pa.types.is_map(kind):
        write = _writer(kind.item_field)
        return lambda pairs: _braced((str(key), write(value)) for key, value in pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        write = _writer(kind.value_field)
        return lambda values: "[" + ",".join(map(write, values)) + "]"
    for known, written in _PLAIN:
        if known(kind):
            return written
    raise ValueError(f"column {name} is {kind}, which has no form in JSON")


def _braced(fields: Iterator[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in fields) + "}"


def _quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _number(value: float) -> str:
    text = json.dumps(float(value))
    return text if math.isfinite(value) else f'"{text}"'


def _time(value: datetime) -> str:
    at = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return f'"{at.isoformat().removesuffix("+00:00")}Z"'


def _nothing(_: Any) -> str:
    return "null"


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_null, _nothing),
    (pa.types.is_boolean, json.dumps),
    (pa.types.is_integer, str),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, lambda value: f'"{value.isoformat()}"'),
    (pa.types.is_time, lambda value: f'"{value.isoformat()}"'),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _quoted),
    (
        lambda kind: any(
            known(kind)
            for known in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
        ),
        lambda value: f'"{base64.b64encode(value).decode()}"',
    ),
)
