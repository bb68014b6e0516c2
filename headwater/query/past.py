"""The past: which version of a table `--at` means, and which versions of rows `--as-of`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime

from headwater.common import times
from headwater.errors import QueryError
from headwater.project.cdc.said import END, START, valid_at
from headwater.query.sources import Source
from headwater.storage import log

_NAME = re.compile(r"\w+\.\w+")
_TIMES = ("timestamp", "timestamp_ntz", "date")  # types of a sequence, as Delta calls them
_WHOLE = ("byte", "short", "integer", "long")


def versions(tables: Sequence[Source], at: str | None, option: str = "--at") -> dict[str, int | None]:
    """{table → the version to read}; None: the newest, and for a CSV file as it is.

    Args:
        tables: the tables that the query names.
        at: a version, which belongs to one table, or an ISO 8601 time (UTC unless it names a zone).
        option: what it was given by, for messages.

    Raises:
        QueryError: neither of them, a version for several tables, or a past that the log does not have.
    """
    if at is None:
        return {table.name: None for table in tables}
    versioned = [table for table in tables if table.is_delta]
    if not at.isdecimal():
        moment = _parsed(at, option)
        found = {table.name: _version_at(table, moment, option) for table in versioned}
    elif len(versioned) == 1:
        found = {versioned[0].name: _existing(versioned[0], int(at))}
    else:
        names = ", ".join(table.name for table in versioned) or "none"
        raise QueryError(
            f"{option} {at} is a version of one table, but the query names {len(versioned)} ({names})",
            code="VERSION_AMBIGUOUS",
            hint=f"write a time: {option} 2026-01-31T06:00:00Z",
        )
    return {table.name: found.get(table.name) for table in tables}


def conditions(tables: Sequence[Source], as_of: str | None, option: str = "--as-of") -> dict[str, str]:
    """{table with a history → which of its rows were valid}, as SQL of both engines.

    Args:
        tables: the tables that the query names.
        as_of: a value of the sequence: a whole number, or an ISO 8601 time (UTC unless it names a zone).
        option: what it was given by, for messages.

    Raises:
        QueryError: neither of them, none of the tables has a history, or one has it by another sequence.
    """
    if as_of is None:
        return {}
    value = _value(as_of, option)
    histories = {table: kind for table in tables if (kind := table.sequence()) is not None}
    for table, kind in histories.items():
        if as_of.isdecimal() if kind in _TIMES else kind in _WHOLE and not as_of.isdecimal():
            what = "a time" if kind in _TIMES else "a whole number"
            raise QueryError(
                f"{option} {as_of} is not {what}, and {table.name} has its history by values of type {kind}",
                code="TIME_INVALID",
                table=table.name,
                hint=f"write {what}: {option} {'2026-01-31T06:00:00Z' if kind in _TIMES else '7'}",
            )
    if not histories:
        names = ", ".join(table.name for table in tables) or "none"
        raise QueryError(
            f"{option} is of tables with {START} and {END}, and the query names {names}",
            code="NO_HISTORY",
            hint="keep one: CREATE STREAMING TABLE … FLOW AUTO CDC … STORED AS SCD TYPE 2",
        )
    return {table.name: valid_at(value) for table in histories}


def as_of(table: str, time: datetime | int | str) -> str:
    """A relation of the rows of a table with a history that were valid at a time, as SQL of both engines.

    Args:
        table: `<layer>.<name>`.
        time: a value of the sequence; a time without a zone is UTC.

    Raises:
        QueryError: that is no name of a table, or no value of a sequence.
    """
    if not _NAME.fullmatch(table):
        raise QueryError(
            f"'{table}' is no name of a table", code="UNKNOWN_TABLE", table=table, hint="write <layer>.<name>"
        )
    said = time.isoformat() if isinstance(time, datetime) else str(time)
    return f"(SELECT * FROM {table} WHERE {valid_at(_value(said, 'as_of'))})"


def _value(as_of: str, option: str) -> str:
    """A value of a sequence as SQL."""
    return as_of if as_of.isdecimal() else f"TIMESTAMP '{_parsed(as_of, option):%Y-%m-%d %H:%M:%S.%f}'"


def _parsed(at: str, option: str) -> datetime:
    try:
        return times.parse(at)
    except ValueError:
        raise QueryError(
            f"{option} {at} is no version and no time",
            code="TIME_INVALID",
            hint="write a version or a time like 2026-01-31T06:00:00Z",
        ) from None


def _existing(table: Source, version: int) -> int:
    first, newest = log.first(table.path), log.head(table.path)
    if not first <= version <= newest:
        raise QueryError(
            f"{table.name} has no version {version}",
            code="UNKNOWN_VERSION",
            table=table.name,
            file=table.path,
            hint=f"it has {first} to {newest}",
        )
    return version


def _version_at(table: Source, moment: datetime, option: str) -> int:
    """The newest version not made after `moment`. Searched by halving: logs are long, commits in order."""
    first, newest = log.first(table.path), log.head(table.path)
    found = range(first, newest + 1)
    index = bisect_right(found, moment, key=lambda version: log.read(table.path, version).at)
    if index == 0:
        begin = log.read(table.path, first).at
        raise QueryError(
            f"{table.name} begins at {begin:%Y-%m-%dT%H:%M:%S.%fZ}, which is after "
            f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            code="UNKNOWN_VERSION",
            table=table.name,
            file=table.path,
            hint=f"write a later {option}",
        )
    return found[index - 1]
