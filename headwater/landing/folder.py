"""The files that a pattern names."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from glob import has_magic, iglob
from pathlib import Path


@dataclass(frozen=True, order=True)
class File:
    """A file as it lies there.

    Attributes:
        modified: when it was written last: microseconds since the epoch.
        path: as the pattern names it: below the project, or absolute.
        size: in bytes.
    """

    modified: int
    path: str
    size: int

    def same(self, modified: int, size: int) -> bool:
        """Whether it is as it was then."""
        return (self.modified, self.size) == (modified, size)


def find(root: Path, pattern: str) -> list[File]:
    """The files that a pattern names, the oldest first.

    Left out are empty ones, and those whose name, or a folder that the pattern does not name itself, begins
    with `_` or `.`: they are being written.

    Args:
        root: where a relative pattern stands.
        pattern: of names, with `*`, `?`, `[…]`, and `**` for folders however deep.
    """
    fixed = len(folder(pattern).parts)
    found = (
        look(root, name)
        for name in iglob(pattern, root_dir=root, recursive=True)
        if not any(part.startswith(("_", ".")) for part in Path(name).parts[fixed:])
    )
    return sorted(file for file in found if file is not None and file.size)


def folder(pattern: str) -> Path:
    """The folder that a pattern begins with: all before the first part that is more than a name."""
    parts = Path(pattern).parts
    return Path(*parts[: next((at for at, part in enumerate(parts) if has_magic(part)), len(parts) - 1)])


def look(root: Path, path: str) -> File | None:
    """A file as it is now; None where there is none."""
    try:
        found = os.stat(root / path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return File(found.st_mtime_ns // 1000, path, found.st_size) if stat.S_ISREG(found.st_mode) else None
