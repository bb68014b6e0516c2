"""The files that a pattern names."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from glob import has_magic, iglob
from pathlib import Path

from headwater.landing import adopted


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


def find(root: Path, pattern: str, *, by_name: bool = False) -> list[File]:
    """The files that a pattern names, the oldest first, or in the order of their names.

    Left out are empty ones, and those whose name, or a folder that the pattern does not name itself, begins
    with `_` or `.`: they are being written.

    Args:
        root: where a relative pattern stands.
        pattern: of names, with `*`, `?`, `[…]`, and `**` for folders however deep; or the folder of a Delta
            table: then the files of its newest version in the order in which they came.
        by_name: whether those of a pattern come in the order of their names.

    Raises:
        ProjectError: the Delta table's rows are not simply those of its files.
    """
    if adopted.is_table(root / pattern):
        return [file for path in adopted.files(root / pattern) if (file := look(root, path)) is not None]
    fixed = len(folder(pattern).parts)
    found = (
        look(root, name)
        for name in iglob(pattern, root_dir=root, recursive=True)
        if not any(part.startswith(("_", ".")) for part in Path(name).parts[fixed:])
    )
    whole = (file for file in found if file is not None and file.size)
    return sorted(whole, key=lambda file: file.path) if by_name else sorted(whole)


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
