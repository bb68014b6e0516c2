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
    """Make `into` the table as it is at `version`, with its history as far as that is still there.

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
    for path in sorted(needed | {table / path for path in _history(into)}):
        try:
            _bring(path, into / path.relative_to(table), full)
        except FileNotFoundError:
            if path in needed:
                raise CommitError(
                    f"{path}: version {version} of {table} needs this file, which is gone",
                    code="VERSION_FILES_GONE",
                    file=path,
                    hint="if it was removed just now, run again",
                ) from None
    if not is_noted:
        checksums.note(into, version)


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


def _history(table: Path) -> set[Path]:
    """The files, as paths below the table, that the commits of a log added or keep changes in."""
    commits = (log.read(table, number) for _, number in _numbered(table / delta.LOG, _COMMIT))
    return {
        Path(file.path).relative_to(table) for commit in commits for file in (*commit.added, *commit.changes)
    }


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
