"""Errors as data: codes, the list of them, and what the command line prints."""

from __future__ import annotations

import ast
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from raising import raises_code

from headwater import errors
from headwater.common.progress import Board
from headwater.errors import BrokerUnavailable, FlowError, HeadwaterError, LakeError, ProjectError
from headwater.errors.causes import data_of
from headwater.errors.codes import MEANINGS, ROOMS, Code
from headwater.errors.codes.__main__ import page

ROOT = Path(__file__).parents[1]
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, HeadwaterError)
}


def sources() -> Iterator[tuple[Path, ast.AST]]:
    """The package's modules but for the list of codes, each node by itself."""
    for path in sorted((ROOT / "headwater").rglob("*.py")):
        if path.parent.name != "codes":
            yield from ((path, node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def made() -> Iterator[tuple[str, str, dict[str | None, ast.expr]]]:
    """Where errors are made: file and line, the class, and the named arguments."""
    for path, node in sources():
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in CLASSES:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield where, name, {keyword.arg: keyword.value for keyword in node.keywords}


def test_every_error_has_a_code_that_its_class_may_have() -> None:
    found = list(made())
    assert len(found) > 300
    for where, name, arguments in found:
        assert "code" in arguments or None in arguments, where  # or that of another, as `**error.data()`
        code = arguments.get("code")
        if isinstance(code, ast.Constant):
            assert name in MEANINGS[code.value].error.split(" or "), where


def test_every_code_is_used_and_has_one_meaning() -> None:
    used = {node.value for _, node in sources() if isinstance(node, ast.Constant)}
    assert [code for code in MEANINGS if code not in used] == []
    assert len(MEANINGS) == sum(len(room.MEANINGS) for room in ROOMS.values())
    assert len({meaning.cause for meaning in MEANINGS.values()}) == len(MEANINGS)


def test_every_code_is_explained() -> None:
    typed = [code for room in get_args(Code) for code in get_args(room)]
    assert sorted(typed) == sorted(MEANINGS)
    for code, meaning in MEANINGS.items():
        assert code.replace("_", "").isalpha() and code.isupper()
        assert {*meaning.error.split(" or ")} <= CLASSES.keys(), code
        assert meaning.cause.endswith(".") and meaning.way_out.endswith("."), code


def test_the_page_lists_them() -> None:
    said = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert said == page(), "run: python -m headwater.errors.codes > docs/errors.md"


@pytest.mark.parametrize("kind", CLASSES.values())
def test_an_error_survives_the_way_between_processes(kind: type[HeadwaterError]) -> None:
    cause = ValueError("below")
    with pytest.raises(kind) as raised:
        raise kind("a: b", code="LEASE_HELD", table="silver.x", file=Path("a"), hint="c") from cause
    raised.value.add_note("seen")
    again = pickle.loads(pickle.dumps(raised.value))
    assert raised.value.__cause__ is cause
    assert type(again) is kind and str(again) == "a: b; c" and again.__notes__ == ["seen"]
    assert again.data() == {"code": "LEASE_HELD", "table": "silver.x", "file": "a", "hint": "c"}
    assert again.message == "a: b" and again.exit_code == kind.exit_code


def test_without_a_hint_the_message_is_all() -> None:
    with raises_code("NO_REBUILD", match="^no rebuild is under way$") as found:
        raise LakeError("no rebuild is under way", code="NO_REBUILD")
    assert found.value.data() == {"code": "NO_REBUILD", "table": None, "file": None, "hint": None}


@pytest.mark.parametrize(
    "wrong",
    [
        FlowError("m", code="LEASE_HELD", table="t", file="a/f.py"),  # another class
        ProjectError("m", code="UNKNOWN_TABLE", table="t", file="a/f.py"),
        ProjectError("m", code="UNKNOWN_SOURCE", table="u", file="a/f.py"),
        ProjectError("m", code="UNKNOWN_SOURCE", table="t", file="a/g.py"),
        ProjectError("m\nn", code="UNKNOWN_SOURCE", table="t", file="a/f.py"),
    ],
)
def test_the_helper_of_the_tests_tells_errors_apart(wrong: HeadwaterError) -> None:
    with pytest.raises(AssertionError), raises_code("UNKNOWN_SOURCE", table="t", file="f.py"):
        raise wrong
    with raises_code("UNKNOWN_SOURCE", table="t", file="f.py"):
        raise ProjectError("m", code="UNKNOWN_SOURCE", table="t", file="a/f.py")


def test_a_flow_that_fails_says_it_as_data() -> None:
    lines, notices = io.StringIO(), io.StringIO()
    board = Board(lines, notices)
    lost = BrokerUnavailable("topic t: no answer", code="BROKER_UNAVAILABLE", hint="is it running?")
    board.state("bronze.t", "waiting", f"{lost}; trying again in 1 s", data_of(lost))
    board.state("gold.u", "failed", "gold/u.py: KeyError: 'x'", data_of(KeyError("x")))
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert first == {
        "event": "state",
        "flow": "bronze.t",
        "state": "waiting",
        "error": "topic t: no answer; is it running?; trying again in 1 s",
        "code": "BROKER_UNAVAILABLE",
        "table": None,
        "file": None,
        "hint": "is it running?",
    }
    assert "code" not in second and second["error"] == "gold/u.py: KeyError: 'x'"
    said = notices.getvalue().splitlines()
    assert said[0].endswith("; trying again in 1 s [BROKER_UNAVAILABLE]") and said[1].endswith(
        "KeyError: 'x'"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_that_fails_says_its_code(tmp_path: Path, as_json: bool) -> None:
    command = [str(Path(sys.executable).with_name("headwater")), "ls", "--project", str(tmp_path)]
    done = subprocess.run([*command, *["--json"] * as_json], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"headwater: {tmp_path}: no project here") and line.endswith("[NO_PROJECT]")
    if not as_json:
        assert done.stdout == ""
        return
    said = json.loads(done.stdout)
    assert said.pop("hint") == "go into one, or use --project" and said.pop("error").endswith("--project")
    assert said == {"event": "error", "code": "NO_PROJECT", "table": None, "file": str(tmp_path)}
