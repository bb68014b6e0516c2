"""Forgetting the past of a table: commits, files that are not its any more, and change data.

All goes up to a checkpoint of the log that nobody reads past (`headwater.operations.maintain.horizon`) and
that is older than what is kept. A version's commit goes after the files that it took away: killed anywhere,
the next time goes on. Readers that begin later begin with a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from headwater.common import times
from headwater.storage import checksums, delta, log, store
from headwater.storage.intent import IntentFile

UNCOMMITTED = timedelta(hours=1)
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


@dataclass(frozen=True)
class Cleaned:
    """What was removed: so many commits, and files with so many bytes."""

    commits: int = 0
    files: int = 0
    bytes: int = 0


def clean(
    table: Path, *, upto: int, before: datetime, held: Callable[[], int | None] = lambda: None
) -> Cleaned:
    """Remove what only versions hold that are older than a checkpoint.

    Who reads a table from its beginning holds it once a first batch is pinned, and then looks whether the log
    still begins there (`headwater.flows.ranged`). So that entry goes first; then it is asked again who holds.

    Args:
        table: the Delta table.
        upto: the checkpoint is of this version, or an older one.
        before: it was made before this time (UTC).
        held: the oldest version that somebody holds now; None: nobody does.
    """
    first = log.first(table)
    checkpoints = _checkpoints(table)
    later = sorted((version for version in checkpoints if first < version <= upto), reverse=True)
    kept = next((version for version in later if log.read(table, version).at <= before), None)
    if kept is None:  # what the time before this has left, where it was killed
        return Cleaned(bytes=_forget_before(table, first) if first in checkpoints else 0)
    checksums.ensure(table, kept)  # it says those of the commits that go
    files = size = 0
    if first == 0:
        store.of(table).delete(delta.entry(table, 0))  # it made the table, and took no file away
        by_now = held()
        if by_now is not None and by_now < kept:
            return Cleaned(1)
    for commit in log.commits(table, after=max(first - 1, 0), upto=kept - 1):
        for path in (*commit.left, *(change.path for change in commit.changes)):
            size += remove(Path(path))
            files += 1
        store.of(table).delete(delta.entry(table, commit.version))
    return Cleaned(kept - first, files, size + _forget_before(table, kept))


def _forget_before(table: Path, version: int) -> int:
    """Remove what the log has of versions before the one of a checkpoint; its bytes."""
    names = store.of(table).names(table / delta.LOG)
    older = [name for name in names if name[:20].isdecimal() and int(name[:20]) < version]
    return sum(remove(table / delta.LOG / name) for name in older)


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
    # The moment, then what is begun, then what is committed: however long this process is stopped in between,
    # a file that is younger, is at work or was committed since is one of these.
    old = list(_written_before(table, times.now() - older))
    if not old:
        return Cleaned(0, 0, 0)
    begun = [intent for file in intents if (intent := file.read()) is not None]
    at_work = () if alone else tuple(intent.batch for intent in begun if not intent.sealed)
    known = {str(table / path) for i in begun for paths in (i.staged or {}).values() for path in paths}
    head, first = log.head(table), log.first(table)
    for commit in log.commits(table, after=first - 1, upto=head):
        known |= {*commit.left, *(file.path for file in (*commit.added, *commit.changes))}
    found = [path for path in old if str(path) not in known]
    found = [path for path in found if not path.relative_to(table).parts[0].startswith(at_work)]
    if found:  # else all is of commits that are still in the log
        known = {file.path for file in log.snapshot(table, head)}
        found = [path for path in found if str(path) not in known]
    files = size = 0
    for path in found:
        with suppress(FileNotFoundError):
            size += remove(path)
            files += 1
    return Cleaned(0, files, size)


def _written_before(table: Path, moment: datetime) -> Iterator[Path]:
    """The Parquet files of a table, but for those of its log, that were written last by a moment."""
    for path in store.of(table).below(table, ".parquet"):
        with suppress(FileNotFoundError):
            old = store.of(path).entry(path).modified <= moment.timestamp()
            if old and path.relative_to(table).parts[0] != delta.LOG:
                yield path


def _checkpoints(table: Path) -> list[int]:
    names = store.of(table).names(table / delta.LOG)
    return [int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))]


def remove(path: Path) -> int:
    """Remove a file, and its folder if it was the last; the bytes that it had."""
    there = store.of(path)
    try:
        size = there.entry(path).size
    except FileNotFoundError:  # by the time before this, which was killed
        return 0
    there.delete(path)
    there.drop_empty(path.parent)
    return size
