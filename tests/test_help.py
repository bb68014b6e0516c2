"""`--help` answers at once: it imports what draws it and nothing that does any work."""

from __future__ import annotations

import subprocess
import sys

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
