"""What the analysis of a project depends on, as digests: where they are the same, so is all that it tells."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from headwater.project import imports
from headwater.project.load import Project
from headwater.project.paths import LAYERS


def in_process(project: Project) -> str:
    """What can become another within a process: definitions, suites, and `conf` with its reference tables."""
    folders = [project.root / name for name in (*LAYERS, "quality", "conf")]
    linked = [reference.path / "_delta_log" for reference in project.references.values()]
    files = {path for folder in (*folders, *linked) for path in _files(folder)}
    return _digest(f"{project.digest}\0{project.env}", files, project.root)


def everywhere(project: Project) -> str:
    """All there is: of the process's own also what it has loaded.

    That is the environment's settings, wherever they come from; every Python file of the project, and of what
    it imports from elsewhere; Python, the names and versions of all packages, and the engine's own code.
    """
    loaded = re.sub(r" at 0x[0-9a-f]+", "", repr(project))  # functions are in their files
    python = (path for path in _files(project.root) if path.suffix == ".py")
    return _digest(
        "\0".join([in_process(project), loaded, _installed()]), {*python, *_imported()}, project.root
    )


def _digest(text: str, files: Iterable[Path], root: Path) -> str:
    found = hashlib.sha256(text.encode())
    for path in sorted(files):
        found.update(
            f"\0{os.path.relpath(path, root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
        )
    return found.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """The files below a folder, not those of environments of Python; of Delta tables the log tells all."""
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".") and name != "__pycache__"]
        below[:] = [name for name in below if not Path(folder, name, "pyvenv.cfg").exists()]
        paths = (Path(folder, name) for name in files if not name.startswith("."))
        yield from (path for path in paths if path.suffix != ".parquet" and path.is_file())


def _imported() -> Iterator[Path]:
    """The files of modules that are neither Python's own, nor a package's, nor the engine's."""
    for module in sys.modules.copy().values():
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py") and imports.is_own(file):
            yield Path(file)


@cache
def _installed() -> str:
    packages = {
        entry.name
        for folder in sys.path
        if os.path.isdir(folder)
        for entry in os.scandir(folder)
        if entry.name.endswith((".dist-info", ".egg-info"))
    }
    return _digest("\0".join([sys.version, *sorted(packages)]), _files(_engine()), _engine())


def _engine() -> Path:
    return Path(__file__).parents[1]
