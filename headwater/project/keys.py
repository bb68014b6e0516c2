"""Keys of a configuration: nested as YAML has it, or flat with dots.

`broker: {port: 9092}` and `broker.port: 9092` are the same, in every section. Some names have dots of their
own: those of options of Kafka and Spark, and of tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.errors import ConfError

_OPTIONS = ("kafka", "librdkafka", "spark")  # whose keys are names with dots
_NAMED = ("postgres", "opensearch", "s3", "maintain.tables")  # in which names have keys below them
_SECTIONS = ("broker", "duckdb", "maintain")


def nested(raw: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """What a file says, each key in its section.

    Args:
        raw: as YAML was read.
        path: the file, for messages.

    Raises:
        ConfError: a key is there both flat and nested.
    """
    found: dict[str, Any] = {}
    for key, value in _flat(raw):
        *sections, last = _parts(key, value)
        inner = found
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise _twice(path, key)
        if value == {} and isinstance(inner.get(last), dict):
            continue
        if last in inner:
            raise _twice(path, key)
        inner[last] = value
    return found


def _parts(key: str, value: Any) -> list[str]:
    """The sections of a key, and its name in the last of them."""
    section, _, rest = key.partition(".")
    if not rest:
        return [key]
    if section in _OPTIONS:
        return [section, rest if section != "spark" or rest.startswith("spark.") else f"spark.{rest}"]
    for named in _NAMED:
        if key.startswith(f"{named}."):
            name, _, last = key.removeprefix(f"{named}.").rpartition(".")
            whole = not name or value is False or value == {}  # a connection that is off
            return [*named.split("."), *([f"{name}.{last}".strip(".")] if whole else [name, last])]
    return [section, rest] if section in _SECTIONS else [key]


def _flat(raw: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _twice(path: Path, key: str) -> ConfError:
    return ConfError(
        f"{path}: key '{key}' comes twice, flat and nested",
        code="CONF_INVALID",
        file=path,
        hint="write it once",
    )
