"""A folder that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.common import locks
from headwater.errors import LeaseError, ProjectError


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Where to make what becomes `folder` in one step when the `with` block ends.

    What a killed process left is removed first.

    Raises:
        ProjectError: `folder` is there already, and holds something.
        LeaseError: another process is making it.
    """
    _check(folder)
    part = unfinished(folder)
    part.mkdir(parents=True, exist_ok=True)
    with _alone(part):
        _check(folder)  # who had the lock may have made it
        for left in part.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield part
        except (Exception, KeyboardInterrupt):
            shutil.rmtree(part)
            raise
        os.rename(part, folder)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock a folder, which keeps the lock when it is renamed.

    Raises:
        LeaseError: another process has it.
    """
    with locks.opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        if not locks.locked(folder):
            raise LeaseError(
                f"{path}: another process is making or removing it",
                code="SAVEPOINT_BUSY",
                file=path,
                hint="wait until that has ended",
            )
        yield


def _check(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(
            f"{folder} is there already, and holds something",
            code="FOLDER_TAKEN",
            file=folder,
            hint="name another folder",
        )


def unfinished(folder: Path) -> Path:
    """Where `folder` is made, and where a killed process leaves it."""
    return folder.with_name(f".{folder.name}.part")


def remove(folder: Path) -> None:
    """Remove a folder: killed half-way, it is not there under its name any more.

    Raises:
        LeaseError: another process is making or removing it.
    """
    _remove_left(unfinished(folder))
    if folder.exists():
        with _alone(folder):
            part = folder.rename(unfinished(folder))
            shutil.rmtree(part)


def remove_left(below: Path) -> None:
    """Remove what killed processes have left of all folders below another one.

    Raises:
        LeaseError: a process is making or removing one of them.
    """
    for part in below.glob(".*.part"):
        _remove_left(part)


def _remove_left(part: Path) -> None:
    with suppress(FileNotFoundError), _alone(part):  # its process may just have ended
        shutil.rmtree(part)
