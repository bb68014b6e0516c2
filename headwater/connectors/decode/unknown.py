"""Which fields of a JSON object are not declared, and which declared ones are not there: from its text.

It takes objects that the decoder found well-formed, and so looks for no errors. Values are kept as they
were written: numbers with every digit, escapes, fields that come twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, DataType, StructType

STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # to the end of the line where it has none
STRUCTURE = re.compile(STRING.pattern + rb"|[{}\[\]]", re.DOTALL)
STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_GAP = rb"[\s,]*"
_SCALAR = rb'"(?:[^"\\]++|\\.)*+"|[^\s,{}\[\]"]+'
_MEMBER = re.compile(_GAP + rb'("(?:[^"\\]++|\\.)*+")\s*:\s*(' + _SCALAR + rb")?", re.DOTALL)
_ELEMENT = re.compile(_GAP + rb"(" + _SCALAR + rb")?", re.DOTALL)


@dataclass(frozen=True)
class Shape:
    """The fields of a declared struct that lies in so many arrays: {name → its shape, None: a value}."""

    fields: dict[bytes, Shape | None]
    arrays: int = 0


@dataclass(frozen=True)
class Found:
    """What an object has beyond its declared fields, and what it lacks.

    Attributes:
        rescued: an object of the unknown fields alone, at their paths; None where there are none. In
            arrays, null stands for elements without any.
        unknown, missing: the paths of these fields; of an element of an array `parts[].n`.
    """

    rescued: str | None
    unknown: tuple[str, ...]
    missing: tuple[str, ...]


def shape(kind: DataType, arrays: int = 0) -> Shape | None:
    """The shape of a type; None where no struct is in it."""
    if isinstance(kind, ArrayType):
        return shape(kind.elementType, arrays + 1)
    if isinstance(kind, StructType):
        return Shape({field.name.encode(): shape(field.dataType) for field in kind}, arrays)
    return None


def rescued(line: bytes, declared: Shape) -> str | None:
    """What `find` rescues; four times as quick where the object is flat, as most are."""
    if line.count(b"{") > 1 or b"[" in line or b"\\" in line:
        return find(line, declared).rescued
    members = _MEMBER.findall(line)
    kept = [key + b":" + value for key, value in members if key[1:-1] not in declared.fields]
    return "{" + b",".join(kept).decode() + "}" if kept else None


def find(line: bytes, declared: Shape) -> Found:
    """The unknown and the missing fields of one well-formed object."""
    unknown: list[str] = []
    missing: list[str] = []
    kept, _ = _object(line, line.index(b"{"), declared, "", unknown, missing)
    paths = (tuple(dict.fromkeys(names)) for names in (unknown, missing))
    return Found(kept.decode() if kept is not None else None, *paths)


def _object(
    line: bytes, at: int, declared: Shape, path: str, unknown: list[str], missing: list[str]
) -> tuple[bytes | None, int]:
    """What to keep of the object that begins at `at`, and where it ends."""
    kept, seen = [], set()
    at += 1
    while member := _MEMBER.match(line, at):
        key, at = member[1], member.end()
        name = key[1:-1] if b"\\" not in key else json.loads(key).encode("utf-8", "surrogatepass")
        inner = declared.fields.get(name)
        if inner is not None and member[2] is None:
            rest, at = _nested(line, at, inner, inner.arrays, f"{path}{name.decode()}", unknown, missing)
            if rest is not None:
                kept.append(key + b":" + rest)
        elif member[2] is None:
            begin, at = at, _end(line, at)
            value = line[begin:at]
        else:
            value = member[2]
        if name in declared.fields:
            seen.add(name)
        else:
            unknown.append(path + name.decode("utf-8", "replace"))
            kept.append(key + b":" + value)
    missing += [path + name.decode() for name in declared.fields if name not in seen]
    return (b"{" + b",".join(kept) + b"}" if kept else None), line.index(b"}", at) + 1


def _nested(
    line: bytes, at: int, declared: Shape, arrays: int, path: str, unknown: list[str], missing: list[str]
) -> tuple[bytes | None, int]:
    """What to keep of a declared object, or of an array of them; see `_object`."""
    if not arrays:
        return _object(line, at, declared, f"{path}.", unknown, missing)
    kept: list[bytes] = []
    last = 0  # of the elements that have something to keep
    at += 1
    while True:
        element = _ELEMENT.match(line, at)
        assert element is not None  # it matches nothing too
        rest, at = None, element.end()
        if element[1] is None:
            if line[at : at + 1] == b"]":
                return (b"[" + b",".join(kept[:last]) + b"]" if last else None), at + 1
            rest, at = _nested(line, at, declared, arrays - 1, f"{path}[]", unknown, missing)
        kept.append(rest or b"null")
        last = len(kept) if rest is not None else last


def _end(line: bytes, at: int) -> int:
    """Where the object or array ends that begins at `at`, however deep it nests."""
    depth = 0
    for found in STRUCTURE.finditer(line, at):
        depth += STEP.get(found[0], 0)
        if not depth:
            return found.end()
    return len(line)


def reasons(found: Found) -> Iterator[str]:
    """Why an object breaks a contract that allows neither unknown nor missing fields."""
    yield from (f"unknown field '{name}'" for name in found.unknown)
    yield from (f"missing field '{name}'" for name in found.missing)
