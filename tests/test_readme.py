"""The README's tour, run as it stands: each command succeeds and prints what the README says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import commands
import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def tour() -> list[tuple[str, str | None]]:
    """Each command of the tour, in order, with the JSON that it shall print, where the README shows it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## A tour of five minutes")[1].split("\n## ")[0]
    steps: list[tuple[str, str | None]] = []
    for kind, block in FENCE.findall(section):
        if kind == "sh":
            steps += [(line, None) for line in block.splitlines() if line]
        else:
            assert kind == "json"
            steps[-1] = (steps[-1][0], block)
    return steps


# Each of these, once, as a process of its own, as a reader of the README has it: one that goes on when its
# command has ended, one that leaves when it is done, and one whose output another program may read.
REAL = ("headwater kafka start", "headwater run ", "headwater query --format json ")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A copy of the reference project with a broker on any free port, stopped in the end."""
    for folder in ("bronze", "silver", "gold", "quality", "queries", "generators", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    with (tmp_path / "conf" / "local.yaml").open("a") as conf:
        conf.write("broker: {port: 0}\n")
    yield tmp_path
    commands.call(["kafka", "stop"], tmp_path)


def call(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell with the project's environment activated would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "160"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_tour_does_what_it_says(project: Path, spark: SparkSession) -> None:
    steps, real = tour(), list(REAL)
    assert len(steps) >= 10
    for command, expected in steps:
        program, *arguments = shlex.split(command)
        assert program == "headwater"
        if kind := next((kind for kind in real if command.startswith(kind)), None):
            real.remove(kind)
            done = call(command, project)
        else:
            done = commands.call(arguments, project)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip() or done.stderr.strip(), f"{command} printed nothing"
        if expected is not None:
            assert json.loads(done.stdout) == json.loads(expected), command
    assert not real


def test_every_document_that_is_linked_exists() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links {link}"


def test_files_that_the_docs_name_exist() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text):
        assert (ROOT / name).exists() or (ROOT / "headwater" / name).exists(), name
