"""What a machine gets once, on first use: the JVM libraries, and archives of their classes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from headwater.common import bar, locks
from headwater.runtime import class_archive, jars

RECORD = ["-m", "headwater.run.record_classes"]  # in a process of its own, whose JVM is none of ours
_PATIENCE = 30.0  # seconds that it gets to end what it has started


def prepare(*, again: bool = False) -> None:
    """Have both; where they are there already, that takes no time.

    Without archives all works, and Java starts more slowly: where they can't be made, that is said once.

    Args:
        again: whether archives are tried again that could not be made before.

    Raises:
        SetupError: there is no Java, or a library can't be had.
    """
    if not jars.jars_folder().is_dir():
        jars.resolve()
    if again and os.access(sys.prefix, os.W_OK):
        _failed().unlink(missing_ok=True)
    if _archived() or not os.access(sys.prefix, os.W_OK):
        return
    with locks.alone(Path(sys.prefix) / "headwater-archives.lock"):
        if _archived():  # by another process, meanwhile
            return
        with bar.shown("archiving Java's classes, once: later starts are faster"):
            problem = _record()
        if problem:
            print(f"headwater: there is no such archive: {problem}", file=sys.stderr)
            _failed().touch()


def _archived() -> bool:
    """Whether the archives are there, or it is known that they can't be made."""
    archives = [class_archive.file(program) for program in class_archive.PROGRAMS]
    return all(map(Path.is_file, archives)) or _failed().exists()


def _failed() -> Path:
    return class_archive.file("spark").with_suffix(".failed")


def _record() -> str:
    """Make the archives; "" or what is wrong."""
    child = subprocess.Popen(
        [sys.executable, *RECORD], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = child.communicate()
    except BaseException:
        child.send_signal(signal.SIGINT)  # it has a broker to stop
        child.wait(_PATIENCE)
        raise
    return (said.strip().splitlines() or ["?"])[-1] if child.returncode else ""
