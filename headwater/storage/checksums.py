"""Checksums of all that a table consists of, so that a byte which a disk has changed is found.

A commit says what the files have that it adds, and what the entry of the log before it has: it can't speak of
itself, nor of files that delta-rs wrote while it made the commit. That is noted at once beside the log, and
the next commit carries the note:

    commitInfo.checksums                       {"files": {path → CRC}, "before": the note as it was then}
    _delta_log/_newest.json                    {"version", "entry": CRC, "files": {path → CRC}}
    _delta_log/<version>.checksums.json        of a checkpoint: {"checkpoint": CRC, "hint": CRC, "files"}

As a checkpoint says what the entries before it did, the checksums beside it say what each of the table's
files has: {path → [CRC, rows, the version that added it]}. All are CRC-32 (zlib's): any change of up to four
neighbouring bytes makes another one, and of other changes all but one in four billion.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, Schema

from headwater.errors import DamageError
from headwater.storage import delta, json_file, log, store

KEY = "checksums"  # of a commit's commitInfo
NEWEST = "_newest.json"
OTHER = "is not what was written: its checksum is another"
_AT_ONCE = 1 << 20  # bytes in memory
_HINT = "remove it: the table's next commit, or its next checkpoint, writes it anew"
_OF_CHECKPOINT = re.compile(r"(\d{20})\.checksums\.json")


def of(file: Path) -> int:
    """The checksum of a file."""
    found = 0
    with file.open("rb", buffering=0) as opened:
        while part := opened.read(_AT_ONCE):
            found = zlib.crc32(part, found)
    return found


def beside(table: Path, version: int) -> Path:
    """Where the checksums of a checkpoint lie."""
    return table / delta.LOG / f"{version:020d}.checksums.json"


def said(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What a commit says of checksums: `files`, and `before`; empty where it says nothing."""
    texts = (action["commitInfo"].get(KEY, "{}") for action in actions if "commitInfo" in action)
    return dict(json.loads(next(texts, "{}")))


def newest(table: Path) -> dict[str, Any] | None:
    """The note on the newest version; None where there is none.

    Raises:
        DamageError: it is not what was written.
    """
    with suppress(FileNotFoundError):
        return json_file.read(table / delta.LOG / NEWEST, table=delta.name_of(table), hint=_HINT)
    return None


def note(table: Path, version: int, entry: bytes | None = None) -> dict[str, Any]:
    """Note what the newest version can't say of itself; the note. `entry`: its entry, if that is known."""
    content = entry or store.of(table).get(delta.entry(table, version))
    actions = delta.parsed(content)
    told = said(actions).get("files", {})
    untold = [path for path, _ in added(actions) if path not in told]
    files = {path: of(table / path) for path in untold if (table / path).exists()}
    made = {"version": version, "entry": zlib.crc32(content), "files": files}
    json_file.write(table / delta.LOG / NEWEST, made)
    return made


def noted(table: Path, version: int) -> dict[str, Any] | None:
    """The note on a version as it was when that was the newest; None where there was none.

    Raises:
        CommitError: the log can't be read.
        DamageError: the note is not what was written.
    """
    last = newest(table)
    if last is None or last["version"] != version:
        after = store.of(table).exists(delta.entry(table, version + 1))
        last = said(delta.actions(table, version + 1)).get("before") if after else None
    return last


def take(table: Path, version: int, into: Path) -> bool:
    """Note the same where a version's entry was brought to; False: `note` it when its files are there, too.

    Raises:
        CommitError: its entry is not what was written, or the log can't be read.
    """
    known, file = noted(table, version), delta.entry(table, version)
    if known is None:
        return False
    if of(file) != known["entry"]:
        raise delta.damaged(table, file, f"it {OTHER}")
    json_file.write(into / delta.LOG / NEWEST, {**known, "entry": of(delta.entry(into, version))})
    return True


def take_beside(table: Path, version: int, into: Path) -> None:
    """Have the checksums beside a checkpoint that was brought to another folder, where it is the newest."""
    with suppress(FileNotFoundError, DamageError):
        known = json_file.read(beside(table, version), hint=_HINT)
        hint = of(into / delta.LOG / delta.LAST_CHECKPOINT)
        json_file.write(beside(into, version), {**known, "hint": hint})


def check(table: Path, version: int | None = None) -> None:
    """Check the files of a version, by default the newest, after something could not read them.

    Raises:
        DamageError: one is not what was written.
        CommitError: the log can't be read.
    """
    kept = Kept.read(table, log.head(table) if version is None else version)
    compare(table, kept.known(kept.files))


def compare(table: Path, known: Mapping[str, int]) -> None:
    """Compare files with their checksums: {path below the table → checksum}.

    Raises:
        DamageError: one is not what was written, or is gone.
    """
    for path, checksum in known.items():
        try:
            found = of(table / path)
        except FileNotFoundError:
            raise delta.damaged_file(table / path, "is gone") from None
        if found != checksum:
            raise delta.damaged_file(table / path, OTHER)


def added(actions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int | None]]:
    """The files that a commit brings, below the table, and their rows; None: it does not say."""
    for action in actions:
        for kind in action.keys() & {"add", "cdc"}:
            stats = json.loads(action[kind].get("stats") or "{}")
            yield unquote(action[kind]["path"]), stats.get("numRecords")


def next_says(
    table: Path, version: int, files: Mapping[str, int], before: Mapping[str, Any] | None = None
) -> str:
    """What the commit after a version says of checksums, as its `commitInfo` has it under `KEY`.

    Args:
        table: the table.
        version: the newest one; -1: there is none.
        files: the checksums of the files that it adds, as far as they are known.
        before: the note on that version, if it is at hand.
    """
    if version < 0:
        return json.dumps({"files": files})
    if before is None:
        with suppress(DamageError):  # `headwater verify` names it
            before = newest(table)
    if before is None or before["version"] != version:  # it was killed between its commit and the note
        before = note(table, version)
    return json.dumps({"files": files, "before": before})


def create(table: Path, columns: Schema, **about: Any) -> None:
    """Make a table without rows.

    Args:
        table: where.
        columns: its columns.
        about: what else `DeltaTable.create` takes.
    """
    make = partial(DeltaTable.create, table, columns, raise_if_key_not_exists=False, **about)
    store.of(table).by_others(table, make)
    note(table, 0)


def checkpoint(table: Path) -> None:
    """Write a checkpoint of the log, if its newest version has none, and the checksums beside it.

    One that is there is never written again: who reads it goes by the size that it had when it was found.

    Raises:
        CommitError: the table is gone, or its log can't be read.
    """
    version = int((opened := delta.opened(table)).version())
    if not store.of(table).exists(delta.checkpoint(table, version)):
        store.of(table).by_others(table, opened.create_checkpoint)
    ensure(table, version)


def ensure(table: Path, version: int) -> None:
    """Have checksums beside a checkpoint, which may not have been made by `checkpoint`.

    Raises:
        CommitError: the log can't be read.
    """
    if store.of(table).exists(beside(table, version)):
        return
    made = {
        "checkpoint": of(delta.checkpoint(table, version)),
        "hint": of(table / delta.LOG / delta.LAST_CHECKPOINT)
        if log.checkpoint(table)[0] == version
        else None,
        "files": Kept.read(table, version).files,
    }
    json_file.write(beside(table, version), made)


class Kept:
    """The files of a version.

    Attributes:
        version: which one.
        files: {path below the table → its checksum (None: not known), its rows (None: not known), and the
            version that added it}.
    """

    def __init__(self, version: int = -1, files: Mapping[str, list[Any]] | None = None) -> None:
        self.version = version
        self.files: dict[str, list[Any]] = dict(files or {})

    @classmethod
    def read(cls, table: Path, version: int) -> Kept:
        """The files of a version as the log has them.

        Raises:
            CommitError: the log can't be read.
        """
        kept = cls._begin(table, version)
        kept.follow(table, version)
        return kept

    def follow(self, table: Path, version: int) -> None:
        """Go on to a later version.

        Raises:
            CommitError: the log can't be read.
        """
        for at in range(self.version + 1, version + 1):
            self.add(at, delta.actions(table, at))
        with suppress(DamageError):
            noted = newest(table)
            if noted is not None and noted["version"] == version:
                self.learn(noted["files"])

    @classmethod
    def _begin(cls, table: Path, version: int) -> Kept:
        """As of a checkpoint."""
        for at in checkpoints(table):
            if at <= version:
                with suppress(DamageError, FileNotFoundError):
                    found = json_file.read(beside(table, at), hint=_HINT)
                    return cls(at, found["files"])
        if store.of(table).exists(delta.entry(table, 0)):
            return cls()
        first = log.first(table)
        files = log.snapshot(table, first)  # of before there were any
        rows = {file.path: file.rows if file.rows >= 0 else None for file in files}
        return cls(first, {os.path.relpath(path, table): [None, rows[path], first] for path in rows})

    def add(self, version: int, actions: Iterable[Mapping[str, Any]]) -> None:
        """Go on to the next version."""
        actions = list(actions)
        says = said(actions)
        self.learn(says.get("before", {}).get("files", {}))
        for action in actions:
            if "remove" in action:
                self.files.pop(unquote(action["remove"]["path"]), None)
        for path, rows in added(action for action in actions if "add" in action):
            self.files[path] = [says.get("files", {}).get(path), rows, version]
        self.version = version

    def learn(self, files: Mapping[str, int]) -> None:
        """Take over checksums of files."""
        for path in files.keys() & self.files.keys():
            self.files[path][0] = files[path]

    def known(self, paths: Iterable[str]) -> dict[str, int]:
        """{path → its checksum} of those of the files whose checksum is known."""
        found = {path: self.files[path][0] for path in paths if path in self.files}
        return {path: checksum for path, checksum in found.items() if checksum is not None}


def checkpoints(table: Path) -> list[int]:
    """The versions of checkpoints that have checksums, the newest first."""
    names = (_OF_CHECKPOINT.fullmatch(name) for name in store.of(table).names(table / delta.LOG))
    return sorted((int(found[1]) for found in names if found), reverse=True)
