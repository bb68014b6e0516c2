"""Apache Ivy, which ships inside pyspark, run on the `<set>.xml` beside this file.

Ivy's own settings say where jars come from; `HEADWATER_IVY_SETTINGS` names another settings file (for a
mirror), and Java takes a proxy from `JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…`.
"""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import SetupError
from headwater.runtime.java import java

HERE = Path(__file__).parent


def pyspark_jars() -> Path:
    """The folder of the jars that pyspark brings; found without importing pyspark.

    Raises:
        SetupError: pyspark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("pyspark is not installed", code="PYSPARK_MISSING", hint="run: make setup")
    return Path(spec.submodule_search_locations[0]) / "jars"


def retrieve(jar_set: str, folder: Path, described: Path | None = None) -> str:
    """Resolve a set into `<folder>/<set>/`, which may stay incomplete: the lock decides.

    Args:
        jar_set: the set, or what another file describes.
        folder: where it goes.
        described: the folder of `<set>.xml`; by default this one.

    Returns:
        Ivy's own account of what it could not get, in one line; empty when nothing is amiss.
    """
    (ivy,) = pyspark_jars().glob("ivy-*.jar")
    settings = os.environ.get("HEADWATER_IVY_SETTINGS")
    command = [str(java()), "-jar", str(ivy), "-warn", *(["-settings", settings] if settings else [])]
    # A cache of its own: Ivy does not lock one that two processes share.
    command += [
        "-ivy",
        str((described or HERE) / f"{jar_set}.xml"),
        "-cache",
        str(folder / f"ivy-{jar_set}"),
    ]
    # Not sources and javadoc; a `bundle` is a jar too, and a `zip` has several.
    kinds = ["-types", "jar", "bundle", "zip"]
    command += [*kinds, "-retrieve", f"{folder}/{jar_set}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return _problems(done.stdout) if done.returncode else ""


def _problems(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [
        line
        for line in lines
        if "not found" in line or "error" in line.lower() or "exception" in line.lower()
    ]
    return " | ".join((telling or lines)[:2])[:300]
