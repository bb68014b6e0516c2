"""Values and what pyarrow's JSON reader makes of them, a whole batch at a time.

A batch that it refuses is cut until the malformed rows stand alone, so a row's fate never depends on its
neighbours. It stops at an unknown field, so a part of a batch that has none costs nothing more; only the
records of the others are looked at one by one (`headwater.connectors.decode.contract`). Well-formed is what
Spark's `from_json` reads without loss, times and dates in ISO 8601; malformed is:

- no value (NULL, which is no tombstone that is asked for), an empty one, or bytes that are not UTF-8
- anything but exactly one JSON object: truncated, an array, trailing text, NaN or Infinity literals
- a declared field of another type, with a number too large for its type, or that comes twice
- an object that nests deeper than 1,000
- fields that the contract does not allow
- an event of Debezium's that lacks a value of its row (`headwater.connectors.decode.envelope`)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, overload

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from headwater.connectors.decode import contract, envelope, unknown
from headwater.connectors.decode.contract import Fields, MalformedError, Part
from headwater.storage import stored

MAX_DEPTH = 1000  # as deep as Spark's own JSON parser goes
_LONGEST = 500  # characters of a reason
_PART = 128  # lines that are read alone once a batch has a malformed row
_UNKNOWN_PART = 512  # and once it has an unknown field
_UNKNOWN = "unexpected field"  # what the reader calls it
_ROW = re.compile(r" in row (\d+)$")
_OTHER_KIND = re.compile(r"changed from (\w+) to (\w+)$")  # as if the schema had been a row before it
_NOT_FINITE = re.compile(rb"[:,\[\s-](?:NaN|Inf)")

Parsed = tuple[pa.Table, pa.Array]


def parser(taken: Fields) -> Callable[[pa.Array], Parsed]:
    """A function from values to their columns and, per row, NULL or why the row is malformed."""
    arrow = stored.schema(taken.declared)
    read = _reader(arrow, lenient=taken.enveloped)
    nothing = envelope.TOMBSTONE if taken.enveloped else None
    judge = contract.judge(taken)
    empty = stored.schema(taken.schema).empty_table()

    def parse(values: pa.Array) -> Parsed:
        joined = _joined(values)
        if joined is not None:
            with suppress(pa.ArrowInvalid, MalformedError):
                table, broken = judge(read(0, _Lines(values), joined))
                if not broken:
                    return table, pa.nulls(len(values), pa.string())
        lines = [_line(nothing if value is None else value) for value in values.to_pylist()]
        reasons = [None if isinstance(line, bytes) else str(line) for line in lines]
        fit = [at for at, line in enumerate(lines) if isinstance(line, bytes)]
        objects = [line for line in lines if isinstance(line, bytes)]
        parts: list[Part] = []
        bad: dict[int, str] = {}
        _salvage(read, objects, 0, parts, bad)
        if taken.contract == "freeze":
            bad = {at: _breach(arrow, objects[at], why) for at, why in bad.items()}
        tables = [empty]
        for part in parts:
            table, broken = judge(part)
            tables.append(table)
            bad.update(broken)
        for at, reason in bad.items():
            reasons[fit[at]] = reason[:_LONGEST]
        table = pa.concat_tables(tables)
        if len(table) == len(lines):
            return table, pa.nulls(len(lines), pa.string())
        wellformed = iter(range(len(table)))
        rows = pa.array([next(wellformed) if reason is None else None for reason in reasons], pa.int64())
        return table.take(rows), pa.array(reasons, pa.string())

    return parse


class _Lines(Sequence[bytes]):
    """Values as lines, of which few are looked at."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        return _Lines(self._values[at]) if isinstance(at, slice) else bytes(self._values[at].as_py())


def _joined(values: pa.Array) -> bytes | None:
    """Values as lines for the reader; None: some have to be looked at by themselves."""
    if not len(values) or values.null_count:
        return None
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return None
    objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not pc.all(objects).as_py() or pc.max(pc.binary_length(values)).as_py() >= 2 * MAX_DEPTH:
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return bytes(pc.binary_join(lines, b"\n")[0].as_py())


def _breach(arrow: pa.Schema, line: bytes, why: str) -> str:
    """Why a line is malformed, marked and with its field's name where it is a well-formed object."""
    if not _is_object(line):
        return why
    for field in arrow:
        try:
            _reader(pa.schema([field]))(0, [line])
        except (pa.ArrowInvalid, MalformedError):
            return f"{contract.BREACH}field '{field.name}': {why}"
    return contract.BREACH + why


def _is_object(line: bytes) -> bool:
    """Whether a line is one well-formed JSON object, whatever its fields."""
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema([]), unexpected_field_behavior="ignore", newlines_in_values=True
    )
    try:
        table = pa.json.read_json(
            pa.BufferReader(line), pa.json.ReadOptions(use_threads=False, block_size=len(line) + 1), options
        )
    except pa.ArrowInvalid:
        return False
    return len(table) == 1 and not _not_finite(line)


def _line(value: bytes | None) -> bytes | MalformedError:
    """A value as the reader takes it, or why it can't be one JSON object."""
    if value is None:
        return MalformedError("no value")
    line = value.strip(b" \t\r\n")
    if line[:1] != b"{" or line[-1:] != b"}":
        return MalformedError("not one JSON object")
    if not line.isascii():
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as e:
            return MalformedError(f"not UTF-8: {e.reason} at byte {e.start}")
    if len(line) >= 2 * MAX_DEPTH and _too_deep(line):
        return MalformedError(f"nested deeper than {MAX_DEPTH}")
    return line


def _too_deep(line: bytes) -> bool:
    """Whether an object nests deeper than `MAX_DEPTH`; quick where it has few brackets."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for found in unknown.STRUCTURE.finditer(line):
        depth += unknown.STEP.get(found[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False


class _Reader(Protocol):
    """A function from lines, each one JSON object, to what is in them; it raises where one is malformed."""

    def __call__(self, start: int, lines: Sequence[bytes], joined: bytes | None = None) -> Part:
        """Read them.

        Args:
            start: where in their batch the first of them stands.
            lines: the lines.
            joined: the same with a line feed between each two, where it is known.
        """


def _reader(arrow: pa.Schema, *, lenient: bool = False) -> _Reader:
    """The reader of some columns.

    Where many lines have an unknown field in any of them, it raises too: smaller parts shall be read. Nobody
    is to know of these where it is `lenient`.
    """

    def options(unexpected: str, multiline: bool) -> pa.json.ParseOptions:
        return pa.json.ParseOptions(
            explicit_schema=pa.schema([_readable(f) for f in arrow]),
            unexpected_field_behavior=unexpected,
            newlines_in_values=multiline,
        )

    strict = "ignore" if lenient else "error"
    known = {multiline: options(strict, multiline) for multiline in (False, True)}
    whatever = {multiline: options("ignore", multiline) for multiline in (False, True)}

    def read(start: int, lines: Sequence[bytes], joined: bytes | None = None) -> Part:
        joined = b"\n".join(lines) if joined is None else joined
        multiline = joined.count(b"\n") != len(lines) - 1 or b"\r" in joined
        size = pa.json.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        only_known = True
        try:
            table = pa.json.read_json(pa.BufferReader(joined), size, known[multiline])
        except pa.ArrowInvalid as e:
            if _UNKNOWN not in str(e) or len(lines) > _UNKNOWN_PART:
                raise
            table, only_known = pa.json.read_json(pa.BufferReader(joined), size, whatever[multiline]), False
        if len(table) != len(lines):
            raise MalformedError("not one JSON object")
        table = table.select(arrow.names).cast(arrow)
        infinite = next((name for name in arrow.names if not _finite(table[name])), None)
        # Where all that stands there is declared, NaN or Infinity is in one of the columns.
        unread = (lenient or not only_known) and (b"NaN" in joined or b"Inf" in joined)
        if (infinite or unread) and any(map(_not_finite, lines)):
            raise MalformedError("NaN and Infinity are not JSON")
        if infinite:
            raise MalformedError(f"{infinite}: not a finite number")
        if lenient:
            envelope.check(arrow, lines, joined)
        return Part(start, lines, table, only_known)

    return read


def _readable(field: pa.Field) -> pa.Field:
    """A field as pyarrow's reader takes it, nullable; it reads a number for a date, so dates come as text."""
    return field.with_type(_readable_type(field.type)).with_nullable(True)


def _readable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_readable(kind.field(at)) for at in range(kind.num_fields)])
    return kind


def _not_finite(line: bytes) -> bool:
    """Whether NaN or Infinity stands in a line outside its strings."""
    return bool(_NOT_FINITE.search(line) and _NOT_FINITE.search(unknown.STRING.sub(b"", line)))


def _salvage(
    read: _Reader,
    lines: list[bytes],
    start: int,
    parts: list[Part],
    bad: dict[int, str],
) -> None:
    """Read all lines but the malformed: append to `parts`, note in `bad` {position: reason}."""
    if not lines:
        return
    try:
        parts.append(read(start, lines))
    except (pa.ArrowInvalid, MalformedError) as e:
        if len(lines) == 1:
            said = _ROW.sub("", " ".join(str(e).split()))
            bad[start] = _OTHER_KIND.sub(r"holds \2, not \1", said)
            return
        for at, stop in _cuts(len(lines), str(e)):
            _salvage(read, lines[at:stop], start + at, parts, bad)


def _cuts(count: int, message: str) -> list[tuple[int, int]]:
    """Where to cut lines that can't be read whole: around the row that the reader names, else in parts."""
    size = _UNKNOWN_PART if _UNKNOWN in message else _PART
    if count > size:
        return [(at, min(at + size, count)) for at in range(0, count, size)]
    named = _ROW.search(message)
    row = int(named[1]) if named else count
    if row >= count:
        return [(0, count // 2), (count // 2, count)]
    return [(0, row), (row, row + 1), (row + 1, count)]


def _finite(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether every number in a column, however deep, is finite."""
    if pa.types.is_floating(column.type):
        return pc.all(pc.is_finite(column), min_count=0).as_py() is not False
    if pa.types.is_list(column.type):
        return _finite(pc.list_flatten(column))
    if pa.types.is_struct(column.type):
        return all(_finite(pc.struct_field(column, [i])) for i in range(column.type.num_fields))
    return True
