"""A file as it lies there, and which names a pattern means."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, order=True)
class File:
    """A file, or an object of a store.

    Attributes:
        modified: when it was written last: microseconds since the epoch; -1, as its size: it can't be told.
        path: as the pattern names it: below the project, absolute, or with its store (`s3://…`).
        size: in bytes.
    """

    modified: int
    path: str
    size: int

    def same(self, modified: int, size: int) -> bool:
        """Whether it is as it was then."""
        return (self.modified, self.size) == (modified, size)


Brought = Generator[tuple[File, Callable[[], Path]], None, None]
"""Files in turn, each with what says where it can be read, until the next is asked for."""


def split(pattern: str) -> tuple[PurePosixPath, tuple[str, ...]]:
    """The folder that a pattern begins with (all before the first part that is more than a name), and its
    other parts."""
    path = PurePosixPath(pattern)
    parts = path.parts
    at = next((at for at, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return PurePosixPath(*parts[:at]), parts[at:]


def is_left_alone(parts: Sequence[str]) -> bool:
    """Whether a name or a folder begins with `_` or `.`: what lies there is being written.

    Args:
        parts: of a path, without the folder that the pattern begins with.
    """
    return any(part.startswith(("_", ".")) for part in parts)


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a pattern means a path, as `glob` does: `**` stands for folders, however deep, or none."""
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == "**":
        return any(matches(parts[at:], rest) for at in range(len(parts))) if rest else bool(parts)
    return bool(parts) and fnmatchcase(parts[0], first) and matches(parts[1:], rest)


def ordered(files: Sequence[File], *, by_name: bool) -> list[File]:
    """In the order of their names, or the oldest first."""
    return sorted(files, key=lambda file: file.path) if by_name else sorted(files)
