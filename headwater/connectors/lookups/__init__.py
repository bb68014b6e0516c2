"""Asking another system what it knows of keys: a function of the project's own, or a table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.common import arrow
from headwater.errors import FlowError, HeadwaterError, LookupUnavailable, ProjectError
from headwater.errors.causes import describe
from headwater.project.conf import Conf
from headwater.project.definitions import Fetch, Lookup, PostgresRows
from headwater.runtime import jvm
from headwater.storage import stored

Key: TypeAlias = tuple[Any, ...]
Answer: TypeAlias = tuple[Any, ...] | None  # the values of the lookup's columns; None: nothing is known


def columns(lookup: Lookup) -> StructType:
    """The columns of its answers, the keys aside.

    Raises:
        ProjectError: they are not Spark DDL.
    """
    try:
        return jvm.ddl(lookup.columns)
    except ValueError as e:
        raise ProjectError(
            f"{lookup.where}: its columns are not Spark DDL: {e}", code="DDL_INVALID", where=lookup.where
        ) from None


def asker(lookup: Lookup, types: Sequence[pa.DataType], conf: Conf) -> Fetch | None:
    """What answers a lookup; None where the environment has it off: then nothing is known of any key.

    Args:
        lookup: the lookup.
        types: of its keys.
        conf: the environment.
    """
    if not isinstance(lookup.fetch, PostgresRows):
        return lookup.fetch
    options = conf.postgres[lookup.fetch.connection]
    if options is False:
        return None
    from headwater.connectors.lookups.postgres import PostgresAsker

    keys = dict(zip(lookup.keys, types, strict=True))
    return PostgresAsker(lookup.where, options, lookup.fetch.table, keys, columns(lookup).names)


def ask(lookup: Lookup, asked: Fetch, keys: Sequence[Key], types: Sequence[pa.DataType]) -> dict[Key, Answer]:
    """What is known of keys, some at a time.

    Args:
        lookup: the lookup.
        asked: what answers it.
        keys: the keys.
        types: theirs.

    Raises:
        LookupUnavailable: there was no answer.
        FlowError: there was one that is not as the lookup declares it.
    """
    of_keys = [pa.field(name, kind) for name, kind in zip(lookup.keys, types, strict=True)]
    schema = pa.schema([*of_keys, *stored.schema(columns(lookup))])
    found: dict[Key, Answer] = dict.fromkeys(keys)
    for at in range(0, len(keys), lookup.at_once):
        some = [dict(zip(lookup.keys, key, strict=True)) for key in keys[at : at + lookup.at_once]]
        for row in _answered(lookup, asked, some, schema):
            key = tuple(row[name] for name in lookup.keys)
            if found.get(key) is not None:
                raise _invalid(lookup, f"it gave two rows of {dict(zip(lookup.keys, key, strict=True))}")
            if key in found:
                found[key] = tuple(row[name] for name in schema.names[len(lookup.keys) :])
    return found


def _answered(
    lookup: Lookup,
    asked: Fetch,
    some: list[dict[str, Any]],
    as_: pa.Schema,
) -> list[dict[str, Any]]:
    """The rows of one call, in the declared types."""
    try:
        rows = [dict(row) for row in asked(some)]
    except HeadwaterError:
        raise
    except Exception as e:  # a function of the user's, or a library of its, may raise anything
        raise LookupUnavailable(
            f"{lookup.where} gave no answer: {describe(e)}",
            code="LOOKUP_UNAVAILABLE",
            where=lookup.where,
            hint="it is asked again",
        ) from e
    for row in rows:
        if lacking := [name for name in as_.names if name not in row]:
            raise _invalid(lookup, f"it gave a row without {', '.join(lacking)}")
    columns = [_column(lookup, field, [row[field.name] for row in rows]) for field in as_]
    return [dict(zip(as_.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(lookup: Lookup, declared: pa.Field, given: list[Any]) -> list[Any]:
    """The values of a column in its declared type."""
    try:
        told: list[Any] = pa.array(
            [arrow.exact(value, declared.type) for value in given], declared.type
        ).to_pylist()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as e:
        raise _invalid(lookup, f"column {declared.name}: {str(e).splitlines()[0]}") from None
    return told


def _invalid(lookup: Lookup, why: str) -> FlowError:
    return FlowError(
        f"{lookup.where}: {why}",
        code="LOOKUP_ANSWER_INVALID",
        where=lookup.where,
        hint=f"give rows with {', '.join(lookup.keys)}, {lookup.columns}; one of each key at most",
    )
