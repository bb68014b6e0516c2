"""Types as Spark's plans write them, and what they are in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Kind = str | Mapping[str, Any]  # as in the JSON of a plan

WHOLE = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT"}
FLOATING = {"float": "FLOAT", "double": "DOUBLE"}
_OTHERS = {
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
}
_PLAIN = {**WHOLE, **FLOATING, **_OTHERS}
MICROSECONDS = "interval"  # of days and shorter, whatever Spark calls it
TIMES = ("timestamp", "timestamp_ntz")
VOID = "void"
MOST_DIGITS = 38  # of a decimal, in both


class Untranslatable(Exception):  # noqa: N818 (nothing is wrong)
    """DuckDB might give something else, or can't be asked."""


class Value(NamedTuple):
    """An expression: its SQL, and its type to Spark."""

    sql: str
    kind: Kind


def require(holds: bool, what: str = "") -> None:
    """Go on only where something holds.

    Raises:
        Untranslatable: it does not.
    """
    if not holds:
        raise Untranslatable(what)


def duck(kind: Kind) -> str:
    """The type in DuckDB.

    Raises:
        Untranslatable: it has none that is the same.
    """
    if isinstance(kind, str):
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind == MICROSECONDS:
            return "BIGINT"
        require(kind.startswith("decimal("), kind)
        return kind.upper()
    if kind["type"] == "struct":
        fields = ", ".join(f"{name(field['name'])} {duck(field['type'])}" for field in kind["fields"])
        require(bool(fields))
        return f"STRUCT({fields})"
    require(kind["type"] == "array", str(kind["type"]))
    return f"{duck(kind['elementType'])}[]"


def same(one: Kind, other: Kind) -> bool:
    """Whether two types are one: whether a part of them may be NULL does not matter."""
    return one == other or (
        VOID not in (one, other) and MICROSECONDS not in (one, other) and duck(one) == duck(other)
    )


def of_json(kind: Kind) -> Kind:
    """A type as plans write it; intervals of days and shorter are one."""
    if isinstance(kind, str) and kind.startswith("interval"):
        require("month" not in kind and "year" not in kind, kind)
        return MICROSECONDS
    return kind


def digits(kind: Kind) -> tuple[int, int] | None:
    """Of a decimal, how many digits it has, and how many of them are behind the point; None: it is none."""
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind[8:-1].split(",")
    return int(precision), int(scale)


def is_exact(kind: Kind) -> bool:
    """Whether equal values of the type are the same values, so that they may tell groups apart."""
    if isinstance(kind, str):
        return kind not in FLOATING and kind not in (VOID, MICROSECONDS)
    return kind["type"] == "struct" and all(is_exact(field["type"]) for field in kind["fields"])


def is_plain(kind: Kind) -> bool:
    """Whether it has an order that is the same in both: it is not nested."""
    return isinstance(kind, str) and kind != VOID


def name(text: str) -> str:
    """A name as DuckDB reads it whole."""
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as a literal."""
    require("\0" not in value)
    return "'" + value.replace("'", "''") + "'"
