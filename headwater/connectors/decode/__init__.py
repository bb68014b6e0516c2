"""From bytes to columns: one parse per row, and every malformed row recognised.

Rows are decoded in Spark's Python workers, or in this process where they are few, by the same parser
(`headwater.connectors.decode.parser` says what is malformed); and by Spark's `from_json` in real-time flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
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

from headwater.common import threads
from headwater.connectors.decode import strict, tombstones
from headwater.connectors.decode.contract import RESCUED, Fields
from headwater.connectors.decode.parser import Parsed, parser
from headwater.errors import ProjectError, Where
from headwater.project.cdc.said import TOMBSTONE
from headwater.project.definitions import Contract, Debezium, Json
from headwater.runtime import catalyst, jvm
from headwater.storage.places import PLACE

MALFORMED = "_malformed"
SOURCE = "_source"
RAW = ("cluster", "topic", "partition", "offset", "timestamp", "key", "value", "headers", "ingested_at")

REJECTED = pa.schema([*PLACE.items(), ("reason", pa.string())])  # where a rejected row stands, and why
_SLICE = 50_000  # rows that the parser is given at a time
MOST = 10_000  # malformed rows of a batch that are told one by one
_CARRIED = (SOURCE, "ingested_at")
_SIMPLE = (StringType, DoubleType, FloatType, IntegralType, BooleanType, DecimalType, DateType, TimestampType)


@cache
def fields(decoder: Json, where: Where) -> Fields:
    """What the decoder takes.

    Raises:
        ProjectError: not DDL, a type that JSON does not carry, a name that the engine gives a column, or an
            unknown contract.
    """
    if decoder.contract not in get_args(Contract):
        raise ProjectError(
            f"{where}: hw.json has contract='{decoder.contract}'",
            code="PROPERTY_INVALID",
            where=where,
            hint=f"known: {', '.join(get_args(Contract))}",
        )
    enveloped = isinstance(decoder, Debezium)
    try:
        if isinstance(decoder, Debezium):
            jvm.ddl(decoder.row)  # what is wrong with it is said of it, not of the event around it
        schema = jvm.ddl(decoder.schema)
    except ValueError as e:
        raise ProjectError(
            f"{where}: the schema of {'hw.debezium' if enveloped else 'hw.json'} is not Spark DDL: {e}",
            code="DDL_INVALID",
            where=where,
        ) from None
    taken = Fields(schema, decoder.contract, where, decoder.timestamp, decoder.tombstones, enveloped)
    if lacking := [name for name in decoder.tombstones if name not in schema.names]:
        raise ProjectError(
            f"{where}: hw.json has tombstones='{', '.join(lacking)}', which is no field of it",
            code="PROPERTY_INVALID",
            where=where,
            hint="name the fields that a record's key has",
        )
    own = [StructField(decoder.timestamp, TimestampType())] if decoder.timestamp else []
    if decoder.timestamp and decoder.timestamp.lower() in map(str.lower, schema.names):
        raise ProjectError(
            f"{where}: hw.json has a field '{decoder.timestamp}' and gives Kafka's timestamp that name",
            code="COLUMN_TWICE",
            where=where,
            hint="take another for one of them",
        )
    for field in [*schema, *own]:
        if field.name.lower() in (*_CARRIED, MALFORMED, RESCUED, TOMBSTONE):
            raise ProjectError(
                f"{where}: hw.json field '{field.name}' is the name of a column that every row has",
                code="COLUMN_RESERVED",
                where=where,
                hint="leave it out",
            )
        _supported(field.dataType, where.said(f"{where}: hw.json field '{field.name}'"))
    return taken


def columns(taken: Fields, bronze: StructType) -> StructType:
    """The columns of decoded rows: the decoder's, `_source` (where in Kafka a row came from), `ingested_at`
    (UTC), and Kafka's timestamp (UTC) and `_tombstone` (BOOLEAN) where they are asked for.

    Args:
        taken: the decoder's fields, as `fields` gives them.
        bronze: the columns of a bronze table.
    """
    source = StructType([bronze[name] for name in PLACE])
    found = StructType([*taken.schema, StructField(SOURCE, source), bronze["ingested_at"]])
    found = found.add(taken.timestamp, TimestampType()) if taken.timestamp else found
    return found.add(TOMBSTONE, BooleanType()) if taken.tombstones else found


def decoded(raw: DataFrame, taken: Fields) -> DataFrame:
    """Rows of a bronze table, decoded in Spark's Python workers.

    Columns: those of `columns`, and `_malformed`: NULL, or why the row is malformed; then the decoder's
    columns are NULL.
    """
    timestamp = ["timestamp"] if taken.timestamp else []
    key = ["key"] if taken.tombstones else []
    picked = raw.select("value", *key, F.struct(*PLACE).alias(SOURCE), "ingested_at", *timestamp)
    flat = columns(taken, raw.schema).add(MALFORMED, StringType())
    return picked.mapInArrow(partial(_decode_batches, taken), flat)


def decoded_here(raw: pa.Table, taken: Fields) -> tuple[pa.Table, pa.ChunkedArray]:
    """Rows of a bronze table, decoded in this process: the columns of `columns`, and `_malformed`."""
    nothing = pa.RecordBatch.from_pylist([], raw.schema)
    whole = raw if len(raw) > _SLICE else raw.combine_chunks()  # few rows of many files are parsed at once
    parse, batches = parser(taken), whole.to_batches(max_chunksize=_SLICE) or [nothing]
    found = pa.concat_tables(threads.each(lambda batch: _decode(parse, taken, _placed(batch)), batches))
    return found.drop_columns([MALFORMED]), found[MALFORMED]


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


def found() -> list[Column]:
    """Aggregates over decoded rows: `malformed`, how many are, and `first`, the first of those in their
    order, as `rejects` takes them; no more than `MOST`, as an aggregate is in memory."""
    place = F.struct(*(F.col(f"{SOURCE}.{name}") for name in PLACE), F.col(MALFORMED).alias("reason"))
    row = F.when(F.col(MALFORMED).isNotNull(), place)
    return [
        F.count(MALFORMED).alias("malformed"),
        F.call_function("min_by", row, row, F.lit(MOST)).alias("first"),
    ]


def rejected(raw: DataFrame, taken: Fields) -> DataFrame:
    """The malformed rows of a bronze table, as they came: its columns and `reason`. All are decoded.

    Only values go to Python. Before each row of a batch that does, Spark counts its bytes, and for that goes
    over all rows whose array is NULL, as `headers` mostly is: a time quadratic in the rows of a batch.
    """

    def reasons(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        parse = parser(taken)
        for values in batches:
            yield parse(values)[1]

    def reasons_with_keys(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        parse = parser(taken)
        for values, keys in batches:
            yield parse(tombstones.filled(values, keys, taken))[1]

    said = reasons_with_keys if taken.tombstones else reasons
    reason = arrow_udf(said, StringType())  # type: ignore[call-overload]  # which kind its hints say
    once = reason.asNondeterministic()  # else Spark would compute it for the filter, and again
    columns = ["value", "key"] if taken.tombstones else ["value"]
    return raw.select(*RAW, once(*columns).alias("reason")).where(F.col("reason").isNotNull())


def native(raw: DataFrame, decoder: Json, where: Where) -> DataFrame:
    """Well-formed rows only, decoded by Spark's `from_json`: for real-time flows, which run no Python.

    Columns: the declared fields, `_source`, its cluster empty, and Kafka's timestamp where it is asked for;
    no `_rescued`. Takes every row that `decoded` does under the contract `evolve`, and gives it the same
    values. Leaves out what is malformed, but for what from_json can't tell: a field that comes twice (its
    last value is taken), a DECIMAL with more digits than its scale (rounded), and text between the object
    and another `}`.
    """
    schema = fields(decoder, where).declared
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
    timestamp = [F.col("timestamp").alias(decoder.timestamp)] if decoder.timestamp else []
    rows = rows.select(F.inline(F.array(F.from_json(text, wide, options))), source, *timestamp)
    columns = [(catalyst.named(field.name), field) for field in schema]
    for column, field in columns:
        rows = rows.where(strict.fits(column, field.dataType))
    own = [strict.own(column, field.dataType).alias(field.name) for column, field in columns]
    carried = [decoder.timestamp] if decoder.timestamp else []
    return rows.where(F.col(MALFORMED).isNull()).select(*own, SOURCE, *carried)


def _placed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a bronze table with `_source`."""
    source = pa.StructArray.from_arrays([batch.column(name) for name in PLACE], list(PLACE))
    return batch.append_column(SOURCE, source)


def _decode_batches(taken: Fields, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parse = parser(taken)
    for batch in batches:
        yield from _decode(parse, taken, batch).combine_chunks().to_batches()


def _decode(parse: Callable[[pa.Array], Parsed], taken: Fields, batch: pa.RecordBatch) -> pa.Table:
    """Rows of a bronze table with `_source`, decoded."""
    values = batch.column("value")
    read = tombstones.filled(values, batch.column("key"), taken) if taken.tombstones else values
    table, reasons = parse(read)
    columns = {name: table[name] for name in table.column_names}
    columns.update({name: batch.column(name) for name in _CARRIED})
    if taken.timestamp:
        columns[taken.timestamp] = batch.column("timestamp")
    if taken.tombstones:
        columns[TOMBSTONE] = tombstones.marks(values)
    return pa.table({**columns, MALFORMED: reasons})


def _supported(kind: DataType, where: Where) -> None:
    if isinstance(kind, ArrayType):
        _supported(kind.elementType, where)
    elif isinstance(kind, StructType):
        for field in kind:
            _supported(field.dataType, where.said(f"{where}.{field.name}"))
    elif not isinstance(kind, _SIMPLE):
        raise ProjectError(
            f"{where}: {kind.simpleString()} is not supported",
            code="FIELD_NOT_SUPPORTED",
            where=where,
            hint="take it as STRING or a STRUCT",
        )
