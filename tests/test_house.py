"""Rules of the code that no linter holds: who may take a lease."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HEADWATER = Path(__file__).parent.parent / "headwater"


def test_only_runs_and_operations_take_leases() -> None:
    rooms = {
        file.relative_to(HEADWATER).parts[0]
        for file, text in _modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _called(node.func) == "Lease"
    }
    assert rooms == {"run", "operations"}


def _modules() -> Iterator[tuple[Path, str]]:
    for file in sorted(HEADWATER.rglob("*.py")):
        yield file, file.read_text(encoding="utf-8")


def _called(function: ast.expr) -> str:
    """The last name of what is called: `Lease` of `Lease(…)` and of `lease.Lease(…)`."""
    return getattr(function, "attr", getattr(function, "id", ""))
