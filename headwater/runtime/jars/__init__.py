"""The JVM libraries: Delta and Kafka for Spark, and the embedded broker.

They are resolved once per user by the Ivy that ships inside pyspark, checked by SHA-256 against
`jars.lock`, and kept in the user's cache (`headwater.runtime.cache`), in a folder named after the lock.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from headwater.common import bar, locks
from headwater.errors import SetupError, causes
from headwater.runtime import cache
from headwater.runtime.jars import ivy, lock
from headwater.runtime.jars.lock import SETS, JarSet

STAMP = "verified.json"
WORK = ".resolving-"
BYTES = 67_500_000  # of all jars, roughly: what is shown of the way goes by it
RESOLVE = f"{Path(sys.executable).name} -m headwater.runtime.jars resolve"


def spark_jars() -> list[Path]:
    """What Spark needs beside its own jars; resolved on the first call (about a minute).

    Raises:
        SetupError: a jar differs from the one that was verified, or cannot be had.
    """
    return _jars("spark")


def kafka_jars() -> list[Path]:
    """The class path of the embedded broker; resolved on the first call (about a minute).

    Raises:
        SetupError: a jar differs from the one that was verified, or cannot be had.
    """
    return _jars("kafka")


def resolve() -> Path:
    """Have every jar of the lock in the cache, each checked by SHA-256, and return their folder.

    What is already there is read and checked in full; if it differs, it is replaced. Processes that do
    this at once wait for the first. A folder appears complete or not at all.

    Raises:
        SetupError: a jar cannot be had, what came is not what the lock says, or the cache can't be written.
    """
    folder = jars_folder()
    try:
        return _resolve(folder)
    except OSError as e:
        found = causes.known(e)
        raise SetupError(
            f"{folder}: {found.message if found is not None else causes.describe(e)}",
            code=found.code if found is not None else "JAR_NOT_FETCHED",
            file=folder,
            hint=f"name a folder that can be written, and has room, as HEADWATER_CACHE, then run: {RESOLVE}",
        ) from e


def _resolve(folder: Path) -> Path:
    with locks.alone(folder.parent / ".lock"):
        for left_by_a_kill in folder.parent.glob(f"{WORK}*"):
            shutil.rmtree(left_by_a_kill)
        if not _verified(folder):
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=WORK) as work:
                come = Path(work)
                with bar.shown("getting the JVM libraries, once", BYTES, lambda: _bytes(come)):
                    complete = _resolve_into(come)
                _put(complete, folder)
    return folder


def jars_folder() -> Path:
    """Where the jars of this lock are, or will be."""
    return cache.folder() / "jars" / lock.lock_hash(_lock_text())


def _jars(jar_set: JarSet) -> list[Path]:
    folder = jars_folder()
    if not folder.is_dir():
        resolve()
    jars = [jar for jar in lock.parse(_lock_text()) if jar.set == jar_set]
    changed = lock.first_resized(jars, folder, _noted_sizes(folder))
    if changed is not None:
        raise SetupError(
            f"{changed.within(folder)}: missing, or not the jar that was verified",
            code="JAR_MISSING",
            file=changed.within(folder),
            hint=f"run: {RESOLVE}",
        )
    return [jar.within(folder) for jar in jars]


def _verified(folder: Path) -> bool:
    jars = lock.parse(_lock_text())
    complete = bool(_noted_sizes(folder)) and lock.first_missing(jars, folder) is None
    return complete and lock.first_different(jars, folder) is None


def _resolve_into(work: Path) -> Path:
    """A complete, verified folder below `work`."""
    problems = retrieve_all(work)
    jars = lock.parse(_lock_text())
    if missing := lock.first_missing(jars, work):
        raise SetupError(
            f"{missing.name}: could not be had ({problems or 'not in the resolved set'})",
            code="JAR_NOT_FETCHED",
            file=missing.name,
            hint=f"check the network, proxy or HEADWATER_IVY_SETTINGS, then run: {RESOLVE}",
        )
    if different := lock.first_different(jars, work):
        raise SetupError(
            f"{different.name}: its SHA-256 is {lock.sha256(different.within(work))}, jars.lock says "
            f"{different.sha256}",
            code="JAR_DIFFERS",
            file=different.name,
            hint=f"check where the jar came from, then run: {RESOLVE}",
        )
    complete = work / "complete"
    for jar in jars:
        jar.within(complete).parent.mkdir(parents=True, exist_ok=True)
        jar.within(work).rename(jar.within(complete))
    sizes = {f"{jar.set}/{jar.name}": jar.within(complete).stat().st_size for jar in jars}
    (complete / STAMP).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    return complete


def retrieve_all(work: Path) -> str:
    """Resolve all sets into `<work>/<set>/` at once (Ivy mostly waits); returns its problems, in one line."""
    with ThreadPoolExecutor(len(SETS)) as pool:
        return " | ".join(filter(None, pool.map(lambda each: ivy.retrieve(each, work), SETS)))


def _bytes(work: Path) -> int:
    """How much Ivy has got so far."""
    found = 0
    for file in work.glob("ivy-*/**/*"):
        with suppress(FileNotFoundError):  # it has just been renamed
            found += file.stat().st_size
    return found


def _put(complete: Path, folder: Path) -> None:
    if folder.exists():
        folder.rename(complete.parent / "replaced")
    complete.rename(folder)


def _noted_sizes(folder: Path) -> dict[str, int]:
    stamp = folder / STAMP
    if not stamp.is_file():
        return {}
    sizes: dict[str, int] = json.loads(stamp.read_text(encoding="utf-8"))
    return sizes


def _lock_text() -> str:
    return lock.lock_file().read_text(encoding="utf-8")
