"""What is in a file: its records, one after the other, each as bytes.

| format | a record | its value |
|---|---|---|
| `json`, `text` | a line that is not empty | the line's bytes, without its end |
| `csv` | a row (RFC 4180, UTF-8); the first row has the names | a JSON object of texts |
| `parquet`, `avro` | a row | a JSON object; see `as_json` |

Lines and CSV may be compressed: `.gz`, `.bz2`, `.lz4`, `.zst`. Rows of the others become JSON, since they
say nothing without the names that stand elsewhere in its file; nothing is interpreted or rounded.
"""

from __future__ import annotations

import csv
import io
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.common import arrow
from headwater.connectors.files.as_json import rows_as_json, value_as_json
from headwater.errors import ProjectError
from headwater.project.definitions import Format

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
    ".avro": "avro",
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
        raise ProjectError(
            "the names of these files say no one format",
            code="FORMAT_UNKNOWN",
            hint=f"say --format {', '.join(FORMATS)}",
        )
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
        rest = stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while data := stream.read(BLOCK):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST:
                raise ValueError(f"a line is longer than {LONGEST >> 20} MiB; write each record in its own")
            yield _values(lines)
        yield _values(rest.split(b"\n"))


def _values(lines: list[bytes]) -> pa.Array:
    whole = (line.removesuffix(b"\r") for line in lines)
    return pa.array([line for line in whole if line], pa.binary())


def _csv(path: Path) -> Iterator[pa.Array]:
    with pa.input_stream(str(path), compression="detect") as stream:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
        names = next((row for row in rows if row), [])
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
        for batch in file.iter_batches(batch_size=ROWS):
            batch.validate(full=True)  # texts are UTF-8
            if (why := arrow.beyond(batch)) is not None:
                raise ValueError(why)
            yield batch


def _avro(path: Path) -> Iterator[pa.Array]:
    """Of an object container file (Avro 1.11): the schema stands in it, blocks may be compressed."""
    with path.open("rb") as file:
        try:
            rows = iter(fastavro.reader(file))
            while part := list(islice(rows, ROWS)):
                yield pa.array([value_as_json(row).encode() for row in part], pa.binary())
        except Exception as e:  # the library checks nothing: what it trips over may be anything
            raise ValueError(f"no Avro file, or a damaged one: {type(e).__name__}: {e}") from e


_READ: dict[Format, Callable[[Path], Iterator[pa.Array]]] = {
    "json": _lines,
    "text": _lines,
    "csv": _csv,
    "parquet": _parquet,
    "avro": _avro,
}
