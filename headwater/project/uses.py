"""What a function of the project uses beside its own text: its rows follow from that, too."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark.sql.types import DataType

from headwater.project import code, imports

_PLAIN = (bool, int, float, str, bytes, Decimal, date, time, timedelta, Enum, re.Pattern, type(None))


def of(function: Any) -> dict[str, str]:
    """{name → a digest of its value, or two of its code, of text and form}: constants, functions and
    classes of the project that a function reads from its module, from another one of the project, or from the
    function that made it, and what those read. Packages that are installed are no part of a project, and
    values of other types tell nothing.
    """
    found = dict[str, tuple[str, ...]]()
    _add(found, inspect.unwrap(function), "", set())
    return {name: " ".join(map(_digest, found[name])) for name in sorted(found)}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of what `of` gives otherwise; layout of code changes nothing."""
    names = sorted({**before, **now})
    return [name for name in names if not {*before.get(name, "").split()} & {*now.get(name, "").split()}]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _add(found: dict[str, tuple[str, ...]], function: Any, within: str, seen: set[int]) -> None:
    """Add what a function uses, by the names of the functions on the way there."""
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for name, value in _read(function):
        if (text := _text(value)) is not None:
            found[f"{within}{name}"] = (text,)
        called = (
            inspect.unwrap(value.func if isinstance(value, partial) else value) if callable(value) else None
        )
        if isinstance(called, FunctionType) and _is_of_project(called):
            texts = code.text_of(called), code.form_of(called)
            found[f"{within}{name}"] = tuple(f"{text or ''}{each}" for each in texts)
            _add(found, called, f"{within}{name}.", seen)


def _read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The names that a function reads, and their values; of a module or class of the project, those in it."""
    names = sorted(set(_names(function.__code__)))
    known = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has none yet
            known[name] = cell.cell_contents
    for name, value in known.items():
        if not isinstance(value, ModuleType | type):
            yield name, value
        elif _is_of_project(value):
            is_class = isinstance(value, type)
            for each, held in sorted(vars(value).items()):
                if each in names or (is_class and (isinstance(held, FunctionType) or each[0] != "_")):
                    yield f"{name}.{each}", held


def _names(of_function: CodeType) -> Iterator[str]:
    yield from of_function.co_names
    for each in of_function.co_consts:
        if isinstance(each, CodeType):  # of what it defines: functions, comprehensions
            yield from _names(each)


def _text(value: Any) -> str | None:
    """A value in words; None: it is of no type that tells what it holds."""
    match value:
        case DataType():
            return str(value.json())
        case partial():
            return _all("partial", [*value.args, *value.keywords.items()])
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _all(type(value).__name__, [getattr(value, each.name) for each in fields(value)])
        case Mapping():
            return _all("mapping", value.items())
        case set() | frozenset():
            texts = [_text(each) for each in value]
            return None if None in texts else f"set({', '.join(sorted(map(str, texts)))})"
        case tuple() | list():
            return _all(type(value).__name__, value)
    return repr(value) if isinstance(value, _PLAIN) else None


def _all(kind: str, values: Iterable[Any]) -> str | None:
    texts = [_text(each) for each in values]
    return None if None in texts else f"{kind}({', '.join(map(str, texts))})"


def _is_of_project(what: FunctionType | type | ModuleType) -> bool:
    """Whether something is defined in a file of the project's own."""
    try:
        return imports.is_own(inspect.getsourcefile(what))
    except (OSError, TypeError):  # built in, or made by what is no file
        return False
