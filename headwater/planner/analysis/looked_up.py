"""The columns that a table's stream gets from its lookup."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from headwater.connectors import lookups
from headwater.connectors.decode import SOURCE
from headwater.errors import ProjectError
from headwater.project.definitions import Lookup, Table

_NESTED = (ArrayType, MapType, StructType, VariantType)


def columns(lookup: Lookup, table: Table, stream: StructType) -> StructType:
    """The stream's columns, and the lookup's.

    Args:
        lookup: the lookup.
        table: the definition that reads the stream.
        stream: the stream's columns.

    Raises:
        ProjectError: it asks by a column that the stream has not, or that is nested; it gives one that the
            stream has; or nothing says where in Kafka a row came from.
    """
    given, known = lookups.columns(lookup), {name.lower() for name in stream.names}
    if lacking := [name for name in (*lookup.keys, SOURCE) if name not in stream.names]:
        raise ProjectError(
            f"{table.where} looks up {lookup.name}, and its stream has no column {', '.join(lacking)}",
            code="LOOKUP_COLUMNS_INVALID",
            where=table.where,
            hint=f"the keys of a lookup are columns of the stream; it has {', '.join(stream.names)}",
        )
    if nested := [name for name in lookup.keys if isinstance(stream[name].dataType, _NESTED)]:
        raise ProjectError(
            f"{table.where} looks up {lookup.name} by {', '.join(nested)}, which is nested",
            code="LOOKUP_COLUMNS_INVALID",
            where=table.where,
            hint="name the fields as columns of their own in a table above",
        )
    if twice := [name for name in given.names if name.lower() in known or name.startswith("_")]:
        raise ProjectError(
            f"{table.where} looks up {lookup.name}, which gives {', '.join(twice)}: the stream has it, or it "
            "begins with _",
            code="LOOKUP_COLUMNS_INVALID",
            where=table.where,
            hint="call it otherwise in the lookup",
        )
    return StructType([*stream, *given])
