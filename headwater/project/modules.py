"""A project's Python files as modules of this process, by path."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import linecache
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.errors import ProjectError


def load(path: Path, given: Mapping[str, Any] | None = None) -> ModuleType:
    """The module that a file is, executed anew.

    Args:
        path: the file.
        given: names that it finds defined.

    Raises:
        ProjectError: it fails; the message has the line of the file.
    """
    name = _name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    vars(module).update(given or {})
    _pin(str(spec.origin))
    try:
        spec.loader.exec_module(module)
    except ProjectError:
        raise
    except Exception as e:
        raise ProjectError(
            f"{path}{_line(e, path)}: {type(e).__name__}: {e}",
            code="MODULE_FAILED",
            file=path,
            hint="mend the file",
        ) from e
    return module


def lines(path: Path, words: Collection[str]) -> dict[str, int]:
    """{name → the line, from 1, of the statement that defines it}, of a file's definitions, and a check that
    each has a name.

    Args:
        path: the file.
        words: the functions of `headwater` that return what has to be named.

    Raises:
        ProjectError: one is called, and what it returns is nothing's value.
    """
    found = dict[str, int]()
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    called = _called(tree, words)
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                found[name] = node.lineno
            case ast.Assign(targets=targets):
                found |= {each.id: node.lineno for each in targets if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node.lineno
            case ast.Expr(value=ast.Call(func=function)) if (text := ast.unparse(function)) in called:
                raise ProjectError(
                    f"{path}:{node.lineno}: {text}(…) has no name, so it is no definition",
                    code="DEFINITION_UNNAMED",
                    file=path,
                    hint=f"write name = {text}(…)",
                )
    return found


def _called(tree: ast.Module, words: Collection[str]) -> set[str]:
    """How a file calls functions of `headwater`, as it has imported them."""
    return {
        f"{each.asname or each.name}.{word}"
        for node in tree.body
        if isinstance(node, ast.Import)
        for each in node.names
        if each.name == "headwater"
        for word in words
    } | {
        each.asname or each.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "headwater"
        for each in node.names
        if each.name in words
    }


def ship(root: Path) -> None:
    """Have functions of the project's modules sent to Spark's workers whole: these can't import them."""
    from pyspark import cloudpickle  # takes long, and who loads a generator does without Spark

    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None) or ""
        ours = name.partition(".")[0] == "headwater" or "site-packages" in file
        if file.startswith(f"{root}{os.sep}") and not ours and module.__name__ == name:
            cloudpickle.register_pickle_by_value(module)


def _name(path: Path) -> str:
    return f"headwater_project_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"


def _pin(file: str) -> None:
    """Have `inspect.getsource` say what is loaded now, whatever becomes of the file from here on."""
    linecache.cache.pop(file, None)
    lines = linecache.getlines(file)
    linecache.cache[file] = (len(lines), None, lines, file)  # without a time: never read again


def _line(error: Exception, path: Path) -> str:
    """`:<line>` of the file where it failed; "" where that is not known."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    at, found = error.__traceback__, ""
    while at is not None:
        found = f":{at.tb_lineno}" if at.tb_frame.f_code.co_filename == str(path) else found
        at = at.tb_next
    return found
