"""Parameters of queries: `$name` in the SQL of both engines, `--param name=value` on the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import duckdb

from headwater.common import times
from headwater.errors import ParameterError

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def parse(given: Iterable[str], option: str = "--param") -> dict[str, Any]:
    """The values of `name=value` arguments, each typed by its look, as in YAML.

    `5` is a whole number, `0.5` a float, `2026-01-31` a date, `2026-01-31T06:00:00Z` a timestamp (UTC
    unless it names a zone), `true`, `false` and `null` are themselves; all else is a string, and so is
    what stands in quotes (`"5"`) or has leading zeros (`007`).

    Raises:
        ParameterError: no `=`, no name, or a name that comes twice.
    """
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ParameterError(
                f"{option} {text} has no name or no value", code="PARAMETER_INVALID", hint="write name=value"
            )
        if name in values:
            raise ParameterError(
                f"{option} {name} is given twice", code="PARAMETER_INVALID", hint="give it once"
            )
        values[name] = _value(value)
    return values


def check(wanted: Collection[str], given: Mapping[str, Any]) -> None:
    """Each parameter of the query has a value, and each value a parameter.

    Raises:
        ParameterError: one is missing or not used.
    """
    for name in sorted(wanted):
        if not name.isidentifier():
            raise ParameterError(
                f"the query has the parameter ${name}",
                code="PARAMETER_INVALID",
                hint="give parameters names, as in $hostname",
            )
        if name not in given:
            raise ParameterError(
                f"the query has the parameter ${name}, which is not given",
                code="PARAMETER_MISSING",
                hint=f"add: --param {name}=VALUE",
            )
    for name in given:
        if name not in wanted:
            known = ", ".join(f"${n}" for n in sorted(wanted)) or "none"
            raise ParameterError(
                f"--param {name} is not in the query", code="UNKNOWN_PARAMETER", hint=f"it has: {known}"
            )


def for_spark(sql: str) -> tuple[str, set[str]]:
    """The query with Spark's markers, `:name` for `$name`, and the parameters' names.

    DuckDB's tokenizer says what is a marker: a `$` inside a string, a quoted name or a comment is none.
    """
    text, parts, at, names = sql, [], 0, set()
    for start, name in _markers(text):
        parts += [text[at:start], f":{name}"]
        at = start + 1 + len(name)
        names.add(name)
    return "".join([*parts, text[at:]]), names


def _markers(sql: str) -> Iterator[tuple[int, str]]:
    raw = sql.encode()  # the tokenizer counts bytes
    for start, kind in duckdb.tokenize(sql):
        if kind != duckdb.token_type.operator or raw[start : start + 1] != b"$":
            continue
        rest = raw[start + 1 :].decode()
        name = rest[: next((i for i, c in enumerate(rest) if not (c.isalnum() or c == "_")), len(rest))]
        if name:
            yield len(raw[:start].decode()), name


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not re.match("-?0[0-9]", text):
        return float(text)
    if _DATE.match(text):
        try:
            if _DATE.fullmatch(text):
                return date.fromisoformat(text)
            return times.parse(text)
        except ValueError:
            return text
    return text
