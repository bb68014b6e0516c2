"""Java's archives of loaded classes: with them Spark and the broker start in about two thirds of the time.

Set-up makes two, one for Spark and one for the broker, in the Python environment: it runs a project of one
record per table and lets each JVM write down which classes it had loaded when it ends. A JVM takes an
archive only if its Java and class path are those that it was made with, and does without it otherwise.

https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from headwater.runtime import java
from headwater.runtime.jars import lock

Program = Literal["spark", "broker"]
PROGRAMS: tuple[Program, ...] = ("spark", "broker")
_QUIET = "-Xlog:cds*=off"  # an archive that does not fit is no event

_recording = False


def options(program: Program, *, record: bool = True) -> list[str]:
    """The options with which a JVM uses its archive, where there is one.

    Args:
        program: what it runs.
        record: whether it writes the archive, while that is made.
    """
    if _recording and record:
        return [f"-XX:ArchiveClassesAtExit={made(program)}", _QUIET]
    archive = file(program)
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.is_file() else []


@cache
def file(program: Program) -> Path:
    """Where the archive of a program is, or would be: its name says for which Java and which libraries."""
    home = java.home()
    release = (home / "release").read_text(encoding="utf-8")
    made_for = [str(home), release, version("pyspark"), lock.lock_file().read_text(encoding="utf-8")]
    key = hashlib.sha256("\n".join(made_for).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"headwater-{program}-{key}.jsa"


def made(program: Program) -> Path:
    """Where this process has an archive written while it records."""
    return file(program).with_suffix(f".{os.getpid()}")


@contextmanager
def recording() -> Iterator[None]:
    """Let each JVM that is started meanwhile write its archive when it ends."""
    global _recording
    _recording = True
    try:
        yield
    finally:
        _recording = False
        for program in PROGRAMS:
            made(program).unlink(missing_ok=True)
