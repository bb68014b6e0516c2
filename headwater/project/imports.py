"""Modules that a project's files import and that are its own: no package's, not the engine's or Python's."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_ENGINE = Path(__file__).parents[1]


def of(files: Iterable[Path]) -> dict[str, Path]:
    """{name → file} of the modules that Python files import, and that these import, wherever in a file that
    is said."""
    found = dict[str, Path]()
    todo = [(file, "") for file in files]
    while todo:
        file, package = todo.pop()
        for name in _named(file, package):
            if name not in found and (there := _file(name)) is not None:
                found[name] = there
                todo.append((there, name if there.name == "__init__.py" else name.rpartition(".")[0]))
    return found


def is_own(file: str | Path | None) -> bool:
    """Whether a file of Python code is none of a package, of Python's, or of the engine."""
    return file is not None and not str(file).startswith(_others()) and Path(file).is_file()


def _named(file: Path, package: str) -> Iterator[str]:
    """What may be a module, of what a file of a package imports: `from a import b` names `a` and `a.b`."""
    with suppress(SyntaxError, ValueError):  # one that is loaded by nobody
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                for each in node.names:
                    yield from _with_parents(each.name)
            elif isinstance(node, ast.ImportFrom):
                of = "." * node.level + (node.module or "")
                with suppress(ImportError):
                    of = importlib.util.resolve_name(of, package)
                    yield from _with_parents(of)
                    yield from (f"{of}.{each.name}" for each in node.names)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _file(name: str) -> Path | None:
    """The file of a module, if that is the project's own."""
    head = _origin(name.partition(".")[0])
    if head is not None and not is_own(head):  # looking for a module imports its parents
        return None
    origin = _origin(name)
    return Path(origin) if origin is not None and is_own(origin) else None


def _origin(name: str) -> str | None:
    """Where a module is from; None: there is none, or it is a folder alone."""
    with suppress(Exception):  # a parent may fail: who needs the module is told
        spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
        return spec.origin if spec is not None else None
    return None


@cache
def _others() -> tuple[str, ...]:
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(f"{folder}{os.sep}" for folder in (*installed, _ENGINE))
