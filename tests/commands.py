"""Commands: `headwater` in the process of the tests, which costs no Python and no JVM; others as they are."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess

from typer.testing import CliRunner

from headwater import cli
from headwater.errors import HeadwaterError

# Those that leave the process when they are done.
LEAVING = ("run", "demo")


def call(arguments: Sequence[str], folder: Path) -> CompletedProcess[str]:
    """Run `headwater` with these arguments in a folder; its output, as a process would have written it."""
    assert arguments[0] not in LEAVING, f"{arguments[0]} would end the tests"
    with chdir(folder):
        runner = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "160"})
        done = runner.invoke(cli.app, list(arguments), prog_name="headwater")
    code, stderr = done.exit_code, done.stderr
    if isinstance(done.exception, HeadwaterError):
        code, stderr = done.exception.exit_code, f"{stderr}headwater: {done.exception}\n"
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(f"headwater {shlex.join(arguments)}", code, done.stdout, stderr)


def ran(*command: object, cwd: Path, **environment: str) -> str:
    """A command that must succeed; its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout
