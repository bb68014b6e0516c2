"""From bytes to columns: one parse per row, and every malformed row recognised.

Values are parsed by pyarrow's JSON reader a whole Arrow batch at a time, in Spark's Python workers. A
batch that it refuses is cut until the malformed rows stand alone, so a row's fate never depends on its
neighbours. Well-formed is what Spark's `from_json` reads without loss, times and dates in ISO 8601;
malformed is:

- no value (NULL), an empty one, or bytes that are not UTF-8
- anything but exactly one JSON object: truncated, an array, trailing text, NaN or Infinity literals
- a declared field of another type, with a number too large for its type, or that comes twice
- an object that nests deeper than 1,000
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater import jvm, stored, strict
from headwater.definitions import Json
from headwater.errors import ProjectError

MALFORMED = "_malformed"
SOURCE = "_source"
RAW = ("cluster", "topic", "partition", "offset", "timestamp", "key", "value", "headers", "ingested_at")

MAX_DEPTH = 1000  # as deep as Spark's own JSON parser goes
_PART = 128  # lines that are read alone once a batch has a malformed row
_ROW = re.compile(r" in row (\d+)$")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # to the end of the line where it has none
_STRUCTURE = re.compile(_STRING.pattern + rb"|[{}\[\]]", re.DOTALL)
_NOT_FINITE = re.compile(rb"[:,\[\s-](?:NaN|Inf)")
_STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
PLACE = {"cluster": pa.string(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
REJECTED = pa.schema([*PLACE.items(), ("reason", pa.string())])  # where a rejected row stands, and why
_CARRIED = (SOURCE, "ingested_at")
_SIMPLE = (StringType, DoubleType, FloatType, IntegralType, BooleanType, DecimalType, DateType, TimestampType)


@cache
def fields(decoder: Json, where: str) -> StructType:
    """The decoder's columns.

    Raises:
        ProjectError: not DDL, a type that JSON does not carry, or a name that the engine gives a column.
    """
    try:
        schema = jvm.ddl(decoder.schema)
    except ValueError as e:
        raise ProjectError(f"{where}: the schema of hw.json is not Spark DDL: {e}") from None
    for field in schema:
        if field.name.lower() in (*_CARRIED, MALFORMED):
            raise ProjectError(
                f"{where}: hw.json field '{field.name}' is the name of a column that every row has; "
                "leave it out"
            )
        _supported(field.dataType, f"{where}: hw.json field '{field.name}'")
    return schema


def columns(schema: StructType, bronze: StructType) -> StructType:
    """The columns of decoded rows: the decoder's, `_source` (where in Kafka a row came from) and
    `ingested_at` (UTC).

    Args:
        schema: the decoder's, as `fields` gives it.
        bronze: those of a bronze table.
    """
    source = StructType([bronze[name] for name in PLACE])
    return StructType([*schema, StructField(SOURCE, source), bronze["ingested_at"]])


def decoded(raw: DataFrame, schema: StructType) -> DataFrame:
    """Rows of a bronze table, decoded in Spark's Python workers.

    Columns: those of `columns`, and `_malformed`: NULL, or why the row is malformed; then the decoder's
    columns are NULL.
    """
    picked = raw.select("value", F.struct(*PLACE).alias(SOURCE), "ingested_at")
    flat = columns(schema, raw.schema).add(MALFORMED, StringType())
    return picked.mapInArrow(partial(_decode_batches, schema), flat)


def decoded_here(raw: pa.Table, schema: StructType) -> tuple[pa.Table, pa.Array]:
    """Rows of a bronze table, decoded in this process: the columns of `columns`, and `_malformed`."""
    source = pa.StructArray.from_arrays([raw[name].combine_chunks() for name in PLACE], list(PLACE))
    table, reasons = parser(schema)(raw["value"].combine_chunks())
    return table.append_column(SOURCE, source).append_column("ingested_at", raw["ingested_at"]), reasons


def rejects(raw: DataFrame, rejected: pa.Table) -> DataFrame:
    """The rows of a bronze table that are rejected, as they came: its columns and `reason`.

    Args:
        raw: the rows of the batch.
        rejected: columns of `REJECTED`.
    """
    reasons = raw.sparkSession.createDataFrame(rejected)  # in memory: joining it needs no job
    return raw.select(*RAW).join(F.broadcast(reasons), list(PLACE)).select(*RAW, "reason")


def without(raw: DataFrame, rejected: pa.Table) -> DataFrame:
    """The rows of a bronze table but for these; columns of `REJECTED`."""
    places = raw.sparkSession.createDataFrame(rejected.select(list(PLACE)))
    return raw.join(F.broadcast(places), list(PLACE), "left_anti")


def at(raw: DataFrame, places: pa.Table) -> DataFrame:
    """The rows that stand at these places in Kafka; columns of both: those of `PLACE`."""
    return raw.join(F.broadcast(raw.sparkSession.createDataFrame(places)), list(PLACE), "left_semi")


def found() -> Column:
    """An aggregate: the malformed rows of decoded ones, as `rejects` takes them."""
    place = F.struct(*(F.col(f"{SOURCE}.{name}") for name in PLACE), MALFORMED)
    return F.collect_list(F.when(F.col(MALFORMED).isNotNull(), place))


def native(raw: DataFrame, decoder: Json, where: str) -> DataFrame:
    """Well-formed rows only, decoded by Spark's `from_json`: for real-time flows, which run no Python.

    Columns: the decoder's and `_source`, its cluster empty. Takes every row that `decoded` does, and gives
    it the same values. Leaves out what is malformed, but for what from_json can't tell: a field that comes
    twice (its last value is taken), a DECIMAL with more digits than its scale (rounded), and text between
    the object and another `}`.
    """
    schema = fields(decoder, where)
    wide = StructType([StructField(f.name, strict.wider(f.dataType)) for f in schema])
    wide.add(MALFORMED, StringType())
    text = F.col("value").cast("string")
    options = {
        "columnNameOfCorruptRecord": MALFORMED,
        "allowNonNumericNumbers": "false",
        "allowSingleQuotes": "false",
    }
    source = F.struct(F.lit("").alias("cluster"), "topic", "partition", "offset").alias(SOURCE)
    whole = F.trim(text, F.lit(" \t\r\n"))
    rows = raw.where(F.expr("is_valid_utf8(value)") & whole.startswith("{") & whole.endswith("}"))
    # One element in an array, inlined: a projection of a struct's fields would parse once for each.
    rows = rows.select(F.inline(F.array(F.from_json(text, wide, options))), source)
    columns = [(F.col(f"`{field.name}`"), field) for field in schema]
    for column, field in columns:
        rows = rows.where(strict.fits(column, field.dataType))
    own = [strict.own(column, field.dataType).alias(field.name) for column, field in columns]
    return rows.where(F.col(MALFORMED).isNull()).select(*own, SOURCE)


def _decode_batches(schema: StructType, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parse = parser(schema)
    for batch in batches:
        table, reasons = parse(batch.column("value"))
        columns = {name: table[name] for name in table.column_names}
        columns.update({name: batch.column(name) for name in _CARRIED})
        columns[MALFORMED] = reasons
        yield from pa.table(columns).combine_chunks().to_batches()


def _supported(kind: DataType, where: str) -> None:
    if isinstance(kind, ArrayType):
        _supported(kind.elementType, where)
    elif isinstance(kind, StructType):
        for field in kind:
            _supported(field.dataType, f"{where}.{field.name}")
    elif not isinstance(kind, _SIMPLE):
        raise ProjectError(f"{where}: {kind.simpleString()} is not supported; take it as STRING or a STRUCT")


Parsed = tuple[pa.Table, pa.Array]


def parser(schema: StructType) -> Callable[[pa.Array], Parsed]:
    """A function from values to their columns and, per row, NULL or why the row is malformed."""
    arrow = stored.schema(schema)
    read = _reader(arrow)

    def parse(values: pa.Array) -> Parsed:
        lines = [_line(value) for value in values.to_pylist()]
        reasons = [None if isinstance(line, bytes) else str(line) for line in lines]
        fit = [at for at, line in enumerate(lines) if isinstance(line, bytes)]
        tables = [arrow.empty_table()]
        bad: dict[int, str] = {}
        _salvage(read, [line for line in lines if isinstance(line, bytes)], 0, tables, bad)
        for at, reason in bad.items():
            reasons[fit[at]] = reason
        table = pa.concat_tables(tables)
        if len(table) == len(lines):
            return table, pa.nulls(len(lines), pa.string())
        wellformed = iter(range(len(table)))
        rows = pa.array([next(wellformed) if reason is None else None for reason in reasons], pa.int64())
        return table.take(rows), pa.array(reasons, pa.string())

    return parse


class _MalformedError(Exception):
    """Some row of these is malformed; the message says why."""


def _line(value: bytes | None) -> bytes | _MalformedError:
    """A value as the reader takes it, or why it can't be one JSON object."""
    if value is None:
        return _MalformedError("no value")
    line = value.strip(b" \t\r\n")
    if line[:1] != b"{" or line[-1:] != b"}":
        return _MalformedError("not one JSON object")
    if not line.isascii():
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as e:
            return _MalformedError(f"not UTF-8: {e.reason} at byte {e.start}")
    if len(line) >= 2 * MAX_DEPTH and _too_deep(line):
        return _MalformedError(f"nested deeper than {MAX_DEPTH}")
    return line


def _too_deep(line: bytes) -> bool:
    """Whether an object nests deeper than `MAX_DEPTH`; quick where it has few brackets."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _STRUCTURE.finditer(line):
        depth += _STEP.get(found[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False


def _reader(arrow: pa.Schema) -> Callable[[list[bytes]], pa.Table]:
    """A function from lines, each one JSON object, to their table; it raises where one is malformed."""
    options = {
        "explicit_schema": pa.schema([_readable(f) for f in arrow]),
        "unexpected_field_behavior": "ignore",
    }
    compact = pa.json.ParseOptions(**options)
    multiline = pa.json.ParseOptions(**options, newlines_in_values=True)

    def read(lines: list[bytes]) -> pa.Table:
        joined = b"\n".join(lines)
        plain = joined.count(b"\n") == len(lines) - 1 and b"\r" not in joined
        table = pa.json.read_json(
            pa.BufferReader(joined),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=compact if plain else multiline,
        )
        if len(table) != len(lines):
            raise _MalformedError("not one JSON object")
        if (b"NaN" in joined or b"Inf" in joined) and any(map(_not_finite, lines)):
            raise _MalformedError("NaN and Infinity are not JSON")
        table = table.select(arrow.names).cast(arrow)
        for name in arrow.names:
            if not _finite(table[name]):
                raise _MalformedError(f"{name}: not a finite number")
        return table

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
    return bool(_NOT_FINITE.search(line) and _NOT_FINITE.search(_STRING.sub(b"", line)))


def _salvage(
    read: Callable[[list[bytes]], pa.Table],
    lines: list[bytes],
    start: int,
    tables: list[pa.Table],
    bad: dict[int, str],
) -> None:
    """Read all lines but the malformed: append to `tables`, note in `bad` {position: reason}."""
    if not lines:
        return
    try:
        tables.append(read(lines))
    except (pa.ArrowInvalid, _MalformedError) as e:
        if len(lines) == 1:
            bad[start] = _ROW.sub("", " ".join(str(e).split()))[:500]
            return
        for at, stop in _cuts(len(lines), str(e)):
            _salvage(read, lines[at:stop], start + at, tables, bad)


def _cuts(count: int, message: str) -> list[tuple[int, int]]:
    """Where to cut lines that can't be read whole: around the row that the reader names, else in parts."""
    if count > _PART:
        return [(at, min(at + _PART, count)) for at in range(0, count, _PART)]
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
