"""How Spark's columns are stored: timestamps in UTC, and everything nullable, however deep.

And how files are read by Arrow: the checksums of their pages are looked at, as far as they have some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.errors.causes import first_line
from headwater.storage import delta, recent

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_BUFFER = 1 << 18  # bytes of a column that are read at a time
_PIECE = 1 << 13  # rows of a file that is read piece by piece


def schema(columns: StructType) -> pa.Schema:
    """The columns as a Delta table holds them.

    Raises:
        PySparkException: a type that Arrow does not have.
    """
    return pa.schema([_nullable(field) for field in to_arrow_schema(columns, timezone="UTC")])


def read(file: str, columns: pa.Schema) -> pa.Table:
    """The rows of a file by a table's columns, see `fitted`.

    Raises:
        DamageError: it is not what was written.
    """
    return fitted(whole(file), columns)


def whole(file: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file as it has them; only some columns, where they are named.

    Raises:
        DamageError: it is not what was written.
    """
    if columns is None:
        return recent.KEPT.rows(file, _read)
    found = recent.KEPT.find(file)
    return _read(file, columns) if found is None else found.select(columns)


def _read(file: str, columns: Sequence[str] | None = None) -> pa.Table:
    with _damage(file):
        return pq.read_table(file, columns=columns, partitioning=None, page_checksum_verification=True)


@contextmanager
def opened(file: str) -> Iterator[pq.ParquetFile]:
    """A file, to be read piece by piece.

    Raises:
        DamageError: it is not what was written.
    """
    with (
        _damage(file),
        pq.ParquetFile(file, buffer_size=_BUFFER, page_checksum_verification=True) as found,
    ):
        yield found


def pieces(file: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file by a table's columns, some at a time.

    Raises:
        DamageError: it is not what was written.
    """
    if (kept := recent.KEPT.find(file)) is not None:
        yield fitted(kept, columns)
        return
    with opened(file) as found:
        for batch in found.iter_batches(_PIECE, use_threads=False):
            yield fitted(pa.Table.from_batches([batch]), columns)


def count(file: str) -> int:
    """The rows of a file, of which all pages are read.

    Raises:
        DamageError: it is not what was written.
    """
    with opened(file) as found:
        return sum(len(batch) for batch in found.iter_batches())


def rows(files: Sequence[str], columns: pa.Schema) -> pa.Table:
    """The rows of files by a table's columns: NULL in those that a file has not.

    Raises:
        DamageError: one is not what was written.
    """
    if len(files) <= recent.ONE_BY_ONE and all(map(recent.is_small, files)):
        return pa.concat_tables([columns.empty_table(), *(read(file, columns) for file in files)])
    try:
        return dataset(files, columns).to_table()
    except (OSError, pa.ArrowException):
        for file in files:
            whole(file)
        raise


def dataset(files: Sequence[str], columns: pa.Schema) -> ds.Dataset:
    """The same, to be read in any way."""
    import pyarrow.dataset as ds  # which imports pandas

    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    checked = ds.ParquetFileFormat(default_fragment_scan_options=options)
    return ds.dataset(list(files), schema=columns, format=checked)


def fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of a file by a table's columns: NULL in those that it got after the file was written."""
    if rows.schema.equals(columns):
        return rows
    names = set(rows.column_names)
    values = [
        rows[name] if name in names else pa.nulls(len(rows), kind)
        for name, kind in zip(columns.names, columns.types, strict=True)
    ]
    return pa.table(values, names=columns.names).cast(columns)


def bounded(columns: pa.Schema) -> list[str]:
    """The columns, nested ones by their paths, of which a file may say between what its values lie.

    Of floating-point ones it may not: writers leave NaN out of the bounds, and readers, to whom it is greater
    than all others, would then pass over the rows that have it.
    """
    return [path for field in columns for path in _bounded(field.name, field.type)]


def unbounded(columns: pa.Schema) -> list[str]:
    """The other ones, which are not nested."""
    return [field.name for field in columns if pa.types.is_floating(field.type)]


def _bounded(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [found for field in kind for found in _bounded(f"{path}.{field.name}", field.type)]
    return [] if pa.types.is_floating(kind) or pa.types.is_nested(kind) else [path]


def fits(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Which values a column of a type may have: a number too large for it no row has. NULL fits."""
    if not (pa.types.is_signed_integer(values.type) and pa.types.is_signed_integer(kind)):
        return pa.repeat(True, len(values))
    if kind.bit_width >= values.type.bit_width:
        return pa.repeat(True, len(values))
    most = pa.scalar(2 ** (kind.bit_width - 1) - 1, values.type)
    least = pa.scalar(-(2 ** (kind.bit_width - 1)), values.type)
    within = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    return pc.fill_null(within, True)


def is_told_apart(kind: pa.DataType) -> bool:
    """Whether equal values of a type are the same to all who compare them: not DOUBLE, nor what is nested."""
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return True
    return any(
        each(kind)
        for each in (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_date)
    )


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=True)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _type(kind.item_type))
    return kind


@contextmanager
def _damage(file: str) -> Iterator[None]:
    """Say which file it is that can't be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as e:
        if isinstance(e, FileNotFoundError) or getattr(e, "errno", None) is not None:  # what the machine says
            raise
        raise delta.damaged_file(Path(file), f"can't be read: {first_line(e)}") from None
