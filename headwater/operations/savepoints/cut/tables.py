"""A version of a Delta table as a table of its own, in another folder: linked or copied, never read."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headwater.errors import CommitError
from headwater.planner.changes.facts import FILE as DEFINITION
from headwater.storage import checksums, delta, log
from headwater.storage.delta import files
from headwater.storage.lake import Lake

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_NO_LINKS = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)  # why a file can't be linked there


def take(
    table: Path, version: int, into: Path, *, full: bool = False, flows: Mapping[str, Any] | None = None
) -> None:
    """Make `into` the table as it is at `version`, with its history as far as that is still there: each of
    the versions that its log has can be opened, and read on from.

    Its files are linked, so nothing that is removed later from either table is missing in the other; nothing
    of the engine changes a file that is written.

    Args:
        table: the table.
        version: the newest one that is taken.
        into: a folder that has no table.
        full: whether files are copied.
        flows: what the newest commit is to say of the flows, where that is something else.

    Raises:
        CommitError: a file of the version is gone, or its entry in the log is not what was written.
    """
    needed = {Path(path) for path in files(table, version)}
    is_noted = _take_log(table, version, into, full=full, flows=flows)
    for path in sorted(needed):
        try:
            _bring(path, into / path.relative_to(table), full)
        except FileNotFoundError:
            raise CommitError(
                f"{path}: version {version} of {table} needs this file, which is gone",
                code="VERSION_FILES_GONE",
                file=path,
                hint="if it was removed just now, run again",
            ) from None
    if not is_noted:
        checksums.note(into, version)
    while not _take_history(table, into, full=full) and log.first(into) < version:
        _begin_later(into)


def _take_log(
    table: Path, version: int, into: Path, *, full: bool, flows: Mapping[str, Any] | None, tries: int = 5
) -> bool:
    """Bring the log first, at once: while many files are copied, maintenance removes what it begins with.

    Returns:
        Whether it says the checksums of the version's files.
    """
    logs = table / delta.LOG
    found = {name: number for name, number in _numbered(logs, _COMMIT) if number <= version}
    checkpoints = {name: number for name, number in _numbered(logs, _CHECKPOINT) if number <= version}
    try:
        for name, number in {**checkpoints, **found}.items():
            if number == version and name in found and flows is not None:
                (into / delta.LOG).mkdir(parents=True, exist_ok=True)
                (into / delta.LOG / name).write_text(_saying(logs / name, flows), encoding="utf-8")
            else:
                _bring(logs / name, into / delta.LOG / name, full)
    except FileNotFoundError:
        if not tries:
            raise
        shutil.rmtree(into / delta.LOG, ignore_errors=True)
        return _take_log(table, version, into, full=full, flows=flows, tries=tries - 1)
    for number in checkpoints.values():
        with suppress(FileNotFoundError):
            _bring(checksums.beside(table, number), checksums.beside(into, number), full)
    if checkpoints:
        newest = max(checkpoints, key=lambda name: checkpoints[name])
        _point(into / delta.LOG, newest)
        checksums.take_beside(table, checkpoints[newest], into)
    return checksums.take(table, version, into)


def empty(table: Path, into: Path) -> None:
    """Make `into` a table like another one that holds nothing."""
    like = delta.opened(table)
    about = like.metadata()
    checksums.create(
        into,
        like.schema(),
        name=about.name,
        description=about.description,
        configuration=dict(about.configuration),
    )


def definition(lake: Lake, name: str, generation: int, into: Path) -> None:
    """Have the definition that a generation of a table was made by in the folder of another's flow."""
    kept = lake.flow_at(name, generation) / DEFINITION
    if kept.is_file():
        into.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kept, into / DEFINITION)


def _take_history(table: Path, into: Path, *, full: bool) -> bool:
    """Bring the files of older versions; whether all are there: maintenance may have begun to forget some of
    these versions, and leaves their entries for last."""
    for path in sorted(_history(into)):
        if not (into / path).exists():
            try:
                _bring(table / path, into / path, full)
            except FileNotFoundError:
                return False
    return True


def _history(table: Path) -> set[Path]:
    """The files, as paths below the table, of all versions that its log has, and those of their changes."""
    logs = table / delta.LOG
    begins = [
        file.path for _, number in [*_numbered(logs, _CHECKPOINT)][:1] for file in log.snapshot(table, number)
    ]
    entries = (delta.actions(table, number) for _, number in _numbered(logs, _COMMIT))
    came = [
        delta.located(table, action[kind]["path"])
        for actions in entries
        for action in actions
        for kind in action.keys() & {"add", "cdc"}
    ]
    return {Path(path).relative_to(table) for path in (*begins, *came)}


def _begin_later(table: Path) -> None:
    """Forget the log's oldest versions, up to its next checkpoint, or else all but the newest one."""
    logs, before = table / delta.LOG, _history(table)
    oldest = min(number for name in (_COMMIT, _CHECKPOINT) for _, number in _numbered(logs, name))
    later = [number for _, number in _numbered(logs, _CHECKPOINT) if number > oldest]
    if not later:
        checksums.checkpoint(table)
        later = [log.head(table)]
    checksums.ensure(table, later[0])  # it says those of the commits that go
    for name in os.listdir(logs):
        if name[:20].isdecimal() and int(name[:20]) < later[0]:
            (logs / name).unlink()
    for path in before - _history(table):
        (table / path).unlink(missing_ok=True)


def _numbered(logs: Path, name: re.Pattern[str]) -> Iterator[tuple[str, int]]:
    """The files of a log whose names are such, with the versions they are of, in order."""
    for each in sorted(os.listdir(logs)):
        if match := name.fullmatch(each):
            yield each, int(match[1])


def _bring(path: Path, into: Path, full: bool) -> None:
    """Link a file, or copy it where that is asked for or can't be done otherwise."""
    into.parent.mkdir(parents=True, exist_ok=True)
    if not full:
        try:
            os.link(path, into)
            return
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
    shutil.copy2(path, into)


def _saying(commit: Path, flows: Mapping[str, Any]) -> str:
    """A commit's file in which other things are said of the flows."""
    lines = []
    for line in commit.read_text(encoding="utf-8").splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            action["commitInfo"][log.IDENTITY_KEY] = json.dumps(flows)
            line = json.dumps(action)
        lines.append(f"{line}\n")
    return "".join(lines)


def _point(logs: Path, checkpoint: str) -> None:
    """Say which checkpoint is the newest, and how many actions it has."""
    last = {"version": int(checkpoint[:20]), "size": pq.read_metadata(logs / checkpoint).num_rows}
    (logs / delta.LAST_CHECKPOINT).write_text(json.dumps(last), encoding="utf-8")
