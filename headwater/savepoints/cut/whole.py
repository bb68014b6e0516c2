"""A folder that is there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import LeaseError, ProjectError


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Where to make what becomes `folder` in one step when the `with` block ends.

    What a killed process left is removed first. The lock is on the folder, which keeps it when it is renamed.

    Raises:
        ProjectError: `folder` is there already, and holds something.
        LeaseError: another process is making it.
    """
    _check(folder)
    part = unfinished(folder)
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseError(f"{folder}: another process is making it; wait until that has ended") from None
        _check(folder)  # who had the lock may have made it
        for left in part.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield part
        except (Exception, KeyboardInterrupt):
            shutil.rmtree(part)
            raise
        os.rename(part, folder)
    finally:
        os.close(lock)


def _check(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder} is there already, and holds something; name another folder")


def unfinished(folder: Path) -> Path:
    """Where `folder` is made, and where a killed process leaves it."""
    return folder.with_name(f".{folder.name}.part")


def remove(folder: Path) -> None:
    """Remove a folder: killed half-way, it is not there under its name any more."""
    part = unfinished(folder)
    shutil.rmtree(part, ignore_errors=True)
    if folder.exists():
        os.rename(folder, part)
        shutil.rmtree(part)
