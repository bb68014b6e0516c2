"""Some tables of a project are chosen alike by every command that takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from raising import raises_code
from test_query import REJECTS, append
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cli.options import selected

TABLE = """import headwater as hw

@hw.table(source="bronze.raw", decode=hw.json("n INT"))
def {0}(raw):
    return raw
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables that decode one topic."""
    root: Path = tmp_path_factory.mktemp("project")
    for name, text in {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/a.py": TABLE.format("a"),
        "silver/b.py": TABLE.format("b"),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def said(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--project", str(project)])


def test_tables_are_chosen_by_arguments_and_by_the_option() -> None:
    assert selected(None, None) == []
    assert selected(["gold.x"], ["gold.y, gold.z", "gold.x"]) == ["gold.x", "gold.y", "gold.z"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--once", "--select", "silver.a,silver.c"],
        ["plan", "silver.c"],
        ["plan", "-s", "silver.c"],
        ["quarantine", "ls", "silver.c"],
    ],
)
def test_a_table_that_is_none_is_named_before_anything_starts(project: Path, arguments: list[str]) -> None:
    with raises_code("UNKNOWN_TABLE", match="silver.c"):
        raise said(project, *arguments).exception or AssertionError


def test_one_quarantine_is_listed(project: Path) -> None:
    def tables(*arguments: str) -> list[str]:
        return [
            line["table"]
            for line in json.loads(said(project, "quarantine", "ls", *arguments, "--json").stdout)
        ]

    append(project, "silver.a", [], REJECTS)
    assert (tables(), tables("silver.b")) == (["silver.a", "silver.b"], ["silver.b"])
    with raises_code("NOTHING_DECODED"):
        raise said(project, "quarantine", "ls", "bronze.raw").exception or AssertionError
