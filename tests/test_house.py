"""Rules of the code that no linter holds: how long a module may be, and who may take a lease."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headwater.connectors import sinks
from headwater.connectors.decode import envelope
from headwater.flows import compared
from headwater.planner import aggregate
from headwater.storage import feed, merging, scan, target
from headwater.storage.names import RESERVED

HEADWATER = Path(__file__).parent.parent / "headwater"
LONGEST = 300  # lines of a module that does not say why it is longer
WHY = "in one file, because "


def test_a_module_is_short_or_says_why_not() -> None:
    long = {
        str(file.relative_to(HEADWATER)): len(text.splitlines())
        for file, text in _modules()
        if len(text.splitlines()) > LONGEST and WHY not in _first_line(text)
    }
    assert not long, f"{long}: split them, or say in the docstring's first line why not: '… {WHY}…'"


def test_no_module_says_why_it_is_long_and_is_not() -> None:
    short = [
        str(file.relative_to(HEADWATER))
        for file, text in _modules()
        if len(text.splitlines()) <= LONGEST and WHY in _first_line(text)
    ]
    assert not short


def test_only_runs_and_operations_take_leases() -> None:
    rooms = {
        file.relative_to(HEADWATER).parts[0]
        for file, text in _modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _called(node.func) in ("Lease", "of_live")
        if file.name != "lease.py"  # the one calls the other
    }
    assert rooms == {"run", "operations"}


def test_no_table_has_a_column_of_the_engines_own() -> None:
    own = {aggregate.WINDOW, aggregate.LATE, aggregate.ROWS, compared._HERE, compared._UNTIL, compared._COMES}
    own |= {target.GONE, feed.SIGN, merging.KIND, sinks.CHANGE, scan.FILE, scan.ROW}
    names = {
        named.value
        for _, text in _modules()
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for named in (node.value.elts if isinstance(node.value, ast.Tuple) else [node.value])
        if isinstance(named, ast.Constant) and re.fullmatch(r"__\w*[a-z]", str(named.value))
    }
    names -= {envelope._ABSENT}  # a value
    assert len(names) > 20 and (own | names) - RESERVED == set()


def _modules() -> Iterator[tuple[Path, str]]:
    for file in sorted(HEADWATER.rglob("*.py")):
        yield file, file.read_text(encoding="utf-8")


def _first_line(text: str) -> str:
    """The first line of a module's docstring; "" where it has none."""
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def _called(function: ast.expr) -> str:
    """The last name of what is called: `of_live` of `of_live(…)` and of `lease.of_live(…)`."""
    return getattr(function, "attr", getattr(function, "id", ""))
