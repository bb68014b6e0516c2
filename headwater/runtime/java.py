"""Java, found and not asked for: Spark 4 and Kafka 4 run on 17 and 21, and on no other version here."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import SetupError

SUITABLE = (17, 21)
JVM_FOLDER = Path("/usr/lib/jvm")
INSTALL = "apt-get install --yes openjdk-17-jre-headless"


def home() -> Path:
    """The home folder of a suitable Java: $JAVA_HOME, else of `java` on $PATH, else below /usr/lib/jvm.

    Raises:
        SetupError: there is none; the message says what was found and how to install one.
    """
    rejected: list[str] = []
    for candidate in dict.fromkeys(_candidates()):
        version = major_version(candidate)
        if version in SUITABLE:
            return candidate
        rejected.append(f"{candidate} ({'version unknown' if version is None else f'Java {version}'})")
    found = ", ".join(rejected) or "no Java"
    raise SetupError(
        f"Java 17 or 21 is needed, found {found}",
        code="JAVA_MISSING",
        hint=f"run: {INSTALL} (or set JAVA_HOME)",
    )


def java() -> Path:
    """The `java` program of `home()`."""
    return home() / "bin" / "java"


def major_version(folder: Path) -> int | None:
    """17 for Java 17.0.15, as the `release` file says that every Java home has; None without one."""
    try:
        release = (folder / "release").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, flags=re.MULTILINE)
    return int(found.group(1)) if found else None


def _candidates() -> Iterator[Path]:
    """Real paths, so that links to one Java count once; in order of preference."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named).resolve()
    if on_path := shutil.which("java"):
        yield _home_of(Path(on_path))
    for program in sorted(JVM_FOLDER.glob("*/bin/java")):
        yield _home_of(program)


def _home_of(program: Path) -> Path:
    return program.resolve().parent.parent


if __name__ == "__main__":  # set-up asks this way
    try:
        print(home())
    except SetupError as e:
        sys.exit(f"headwater: {e}")
