"""From bytes to columns: one parse per row, and every malformed row recognised.

Values are parsed by pyarrow's JSON reader a whole Arrow batch at a time, in Spark's Python workers. A
batch that it refuses is cut until the malformed rows stand alone, so a row's fate never depends on its
neighbours. Well-formed is what Spark's `from_json` reads without loss; malformed is:

- no value (NULL), an empty one, or bytes that are not UTF-8
- anything but exactly one JSON object: truncated, an array, trailing text, NaN or Infinity literals
- a declared field of another type, with a number too large for its type, or that comes twice
- an object that nests deeper than 1,000
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
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

from headwater import jvm
from headwater.definitions import Json
from headwater.errors import ProjectError

MALFORMED = "_malformed"
SOURCE = "_source"
SOURCE_DDL = "STRUCT<cluster: STRING, topic: STRING, partition: INT, offset: BIGINT>"
RAW = ("cluster", "topic", "partition", "offset", "timestamp", "key", "value", "headers", "ingested_at")

MAX_DEPTH = 1000  # as deep as Spark's own JSON parser goes
_PART = 128  # lines that are read alone once a batch has a malformed row
_ROW = re.compile(r" in row (\d+)$")
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_CARRIED = ("cluster", "topic", "partition", "offset", "ingested_at")
_SIMPLE = (StringType, DoubleType, FloatType, IntegralType, BooleanType, DecimalType, DateType, TimestampType)


def fields(decoder: Json, where: str) -> StructType:
    """The decoder's columns.

    Raises:
        ProjectError: not DDL, or a type that JSON does not carry.
    """
    try:
        schema = jvm.ddl(decoder.schema)
    except ValueError as e:
        raise ProjectError(f"{where}: the schema of hw.json is not Spark DDL: {e}") from None
    for field in schema:
        _supported(field.dataType, f"{where}: hw.json field '{field.name}'")
    return schema


def decoded(raw: DataFrame, decoder: Json, where: str) -> DataFrame:
    """Rows of a bronze table, decoded.

    Columns: the decoder's, `_source` (where in Kafka the row came from), `ingested_at` (UTC) and
    `_malformed`: NULL, or why the row is malformed; then the decoder's columns are NULL.
    """
    schema = fields(decoder, where)
    picked = raw.select("value", *_CARRIED)
    flat = StructType([*schema, StructField(MALFORMED, StringType()), *picked.drop("value").schema])
    rows = picked.mapInArrow(partial(_decode_batches, schema), flat)
    source = F.struct("cluster", "topic", "partition", "offset").alias(SOURCE)
    return rows.select(*(f"`{f.name}`" for f in schema), source, "ingested_at", MALFORMED)


def rejects(raw: DataFrame, malformed: Sequence[Row]) -> DataFrame:
    """The rows of a bronze table that were found malformed, as they came: its columns and `reason`.

    Args:
        raw: the rows of the batch.
        malformed: where each malformed row stands in Kafka (cluster, topic, partition, offset), and its
            reason; see `found`.
    """
    places = "cluster STRING, topic STRING, partition INT, offset BIGINT, reason STRING"
    reasons = raw.sparkSession.createDataFrame(list(malformed), places)
    keys = ["cluster", "topic", "partition", "offset"]
    return raw.select(*RAW).join(F.broadcast(reasons), keys).select(*RAW, "reason")


def found() -> Column:
    """An aggregate: the malformed rows of decoded ones, as `rejects` takes them."""
    place = F.struct(
        *(F.col(f"{SOURCE}.{name}") for name in ("cluster", "topic", "partition", "offset")), MALFORMED
    )
    return F.collect_list(F.when(F.col(MALFORMED).isNotNull(), place))


def native(raw: DataFrame, decoder: Json, where: str) -> DataFrame:
    """Well-formed rows only, decoded by Spark's `from_json`: for real-time flows, which run no Python.

    Columns: the decoder's and `_source`. Agrees with `decoded` on every row that this finds well-formed,
    except that from_json takes a field's last value where it comes twice, and text after the object.
    """
    schema = fields(decoder, where)
    corrupt = StructType([*schema, StructField(MALFORMED, StringType())])
    text = F.when(F.expr("is_valid_utf8(value)"), F.col("value").cast("string"))
    parsed = F.from_json(
        text, corrupt, {"columnNameOfCorruptRecord": MALFORMED, "allowNonNumericNumbers": "false"}
    )
    source = F.struct(F.lit("").alias("cluster"), "topic", "partition", "offset").alias(SOURCE)
    # One element in an array, inlined: a projection of a struct's fields would parse once for each.
    rows = raw.where("value IS NOT NULL").select(F.inline(F.array(parsed)), source)
    return rows.where(F.col(MALFORMED).isNull()).drop(MALFORMED)


def _decode_batches(schema: StructType, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parse = parser(schema)
    for batch in batches:
        table, reasons = parse(batch.column("value"))
        columns = {name: table[name] for name in table.column_names}
        columns[MALFORMED] = reasons
        columns.update({name: batch.column(name) for name in _CARRIED})
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
    arrow = to_arrow_schema(schema, timezone="UTC")
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
    options = {"explicit_schema": arrow, "unexpected_field_behavior": "ignore"}
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
        for name in arrow.names:
            if not _finite(table[name]):
                raise _MalformedError(f"{name}: not a finite number")
        return table.select(arrow.names)

    return read


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
