"""`--help` answers at once: it imports what draws it and nothing that does any work. Names are completed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.cli import app

ROOT = Path(__file__).parent.parent

ASK = """
import sys
from headwater import cli
try:
    cli.app({arguments!r}, prog_name="headwater")
except SystemExit as e:
    assert e.code == 0
print(*sorted({{module.partition(".")[0] for module in sys.modules}}), file=sys.stderr)
"""
WORKS = {"confluent_kafka", "deltalake", "duckdb", "great_expectations", "numpy", "pandas", "prompt_toolkit"}
WORKS |= {"py4j", "pyarrow", "pyspark", "yaml"}


def imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(arguments=arguments)], capture_output=True, text=True, check=True
    )
    assert "Usage: headwater" in done.stdout
    return {*done.stderr.splitlines()[-1].split()}


def test_help_imports_nothing_that_works() -> None:
    for arguments in (["--help"], ["query", "-h"], ["quarantine", "ls", "--help"]):
        found = imported(*arguments)
        assert "typer" in found and not found & WORKS, arguments


@pytest.mark.parametrize(
    ("command", "argument", "begun", "wanted"),
    [
        ("history", "table", "silver.cp", ["silver.cpu_metrics"]),
        ("run", "tables", "bronze.iot", ["bronze.iot_metrics"]),
        ("query", "sql", "busiest_l", ["busiest_lifts"]),
        ("produce", "name", "io", ["iot"]),
        ("ls", "env", "lo", ["local"]),
    ],
)
def test_names_of_the_project_are_completed(
    command: str, argument: str, begun: str, wanted: list[str], tmp_path: Path
) -> None:
    found: Any = typer.main.get_command(app)
    told = found.commands[command]
    (parameter,) = (each for each in told.params if each.name == argument)
    context = typer.Context(told)
    context.params["project"] = str(ROOT)
    assert [item.value for item in parameter.shell_complete(context, begun)] == wanted
    context.params["project"] = str(tmp_path)  # there is none
    assert parameter.shell_complete(context, begun) == []
