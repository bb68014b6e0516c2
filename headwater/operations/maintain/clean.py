"""Forgetting the past of a table: commits, files that are not its any more, and change data.

All goes up to a checkpoint of the log that nobody reads past (`headwater.operations.maintain.horizon`) and
that is older than what is kept. A version's commit goes after the files that it took away: killed anywhere,
the next time goes on. Readers that begin later begin with a snapshot.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from headwater.storage import checksums, log
from headwater.storage.intent import IntentFile

UNCOMMITTED = timedelta(hours=1)
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


@dataclass(frozen=True)
class Cleaned:
    """What was removed: so many commits, and files with so many bytes."""

    commits: int = 0
    files: int = 0
    bytes: int = 0


def clean(table: Path, *, upto: int, before: datetime) -> Cleaned:
    """Remove what only versions hold that are older than a checkpoint.

    Args:
        table: the Delta table.
        upto: the checkpoint is of this version, or an older one.
        before: it was made before this time (UTC).
    """
    first = log.first(table)
    checkpoints = [version for version in _checkpoints(table) if first < version <= upto]
    kept = next((v for v in sorted(checkpoints, reverse=True) if log.read(table, v).at <= before), None)
    if kept is None:
        return Cleaned()
    checksums.ensure(table, kept)  # it says those of the commits that go
    files = size = 0
    for commit in log.commits(table, after=first - 1, upto=kept - 1):
        for path in (*commit.left, *(change.path for change in commit.changes)):
            size += remove(Path(path))
            files += 1
        (table / "_delta_log" / f"{commit.version:020d}.json").unlink()
    with os.scandir(table / "_delta_log") as entries:
        for entry in entries:
            if entry.name[:20].isdecimal() and int(entry.name[:20]) < kept:
                size += remove(Path(entry.path))
    return Cleaned(kept - first, files, size)


def forget_uncommitted(
    table: Path, intents: Iterable[IntentFile], *, older: timedelta = UNCOMMITTED, alone: bool = False
) -> Cleaned:
    """Remove the files that no version has and no batch is at work on: what killed processes have left.

    Args:
        table: the Delta table.
        intents: of all flows.
        older: only what was written so long ago; what is newer may be committed yet.
        alone: whether no process writes the table: of a batch that was begun only what is staged stays, as
            the rest is built again.
    """
    head, first = log.head(table), log.first(table)
    known = {file.path for file in log.snapshot(table, head)}
    for commit in log.commits(table, after=first - 1, upto=head):
        known |= {*commit.left, *(file.path for file in (*commit.added, *commit.changes))}
    begun = [intent for file in intents if (intent := file.read()) is not None]
    for staged in (intent.staged or {} for intent in begun):
        known |= {str(table / path) for paths in staged.values() for path in paths}
    at_work = () if alone else tuple(f"{intent.batch}-" for intent in begun)
    files = size = 0
    for path in _files(table):
        below = path.relative_to(table)
        if str(path) in known or below.parts[0] == "_delta_log" or below.parts[0].startswith(at_work):
            continue
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime >= older.total_seconds():
                size += remove(path)
                files += 1
    return Cleaned(0, files, size)


def _files(table: Path) -> Iterator[Path]:
    """The Parquet files below a folder; a flow may remove some of them meanwhile."""
    for folder, _, names in os.walk(table):
        yield from (Path(folder, name) for name in names if name.endswith(".parquet"))


def _checkpoints(table: Path) -> list[int]:
    with os.scandir(table / "_delta_log") as entries:
        return [int(found[1]) for entry in entries if (found := _CHECKPOINT.fullmatch(entry.name))]


def remove(path: Path) -> int:
    """Remove a file, and its folder if it was the last; the bytes that it had."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:  # by the time before this, which was killed
        return 0
    with suppress(OSError):  # not empty
        path.parent.rmdir()
    return size
