"""The lock: one line per jar that is used, `<sha256> <set> <file name>`, and the check against it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

JarSet = Literal["spark", "kafka"]
SETS: tuple[JarSet, ...] = get_args(JarSet)


@dataclass(frozen=True, order=True)
class LockedJar:
    """One jar of a set, and the SHA-256 (hex) that its file must have."""

    set: JarSet
    name: str
    sha256: str

    def within(self, folder: Path) -> Path:
        """Where the jar stands in a folder that holds both sets."""
        return folder / self.set / self.name


def lock_file() -> Path:
    """The lock that is shipped with the package."""
    return Path(str(files("headwater.runtime.jars") / "jars.lock"))


def lock_hash(text: str) -> str:
    """What names a set of jars in the cache: a changed lock is another folder."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(text: str) -> list[LockedJar]:
    """The jars of a lock, in its order.

    Raises:
        ValueError: a line is not `<sha256> <set> <file name>`.
    """
    jars: list[LockedJar] = []
    for line in text.splitlines():
        sha256, jar_set, name = line.split()
        (known,) = (each for each in SETS if each == jar_set)
        jars.append(LockedJar(known, name, sha256))
    return jars


def render(jars: Iterable[LockedJar]) -> str:
    """The lock's text, sorted by set and name, so that a change reads as a diff of jars."""
    return "".join(f"{jar.sha256} {jar.set} {jar.name}\n" for jar in sorted(jars))


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_missing(jars: Iterable[LockedJar], folder: Path) -> LockedJar | None:
    """The first jar that has no file in the folder."""
    return next((jar for jar in jars if not jar.within(folder).is_file()), None)


def first_different(jars: Iterable[LockedJar], folder: Path) -> LockedJar | None:
    """The first jar whose bytes are not those of the lock: a full read, some 0.2 s for all."""
    return next((jar for jar in jars if sha256(jar.within(folder)) != jar.sha256), None)


def first_resized(jars: Iterable[LockedJar], folder: Path, sizes: Mapping[str, int]) -> LockedJar | None:
    """The first jar whose size in bytes is not the one noted when its bytes were checked."""
    for jar in jars:
        path = jar.within(folder)
        if not path.is_file() or path.stat().st_size != sizes.get(f"{jar.set}/{jar.name}"):
            return jar
    return None
