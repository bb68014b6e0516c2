"""What of a Delta table is not what was written: files, entries and checkpoints of its log, and notes.

Each is read once and compared with its checksum (`storage.checksums`). An entry of the log is known by the
one after it, so they are read from the newest on; one that is not what was written says nothing that is
believed. What has no checksum, as it was written before there were any, is only read as Parquet. Nothing is
changed, and a flow may go on meanwhile: what it removes is passed over.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from headwater.errors import DamageError, HeadwaterError
from headwater.errors.causes import first_line
from headwater.storage import checksums, delta, json_file, log, stats, stored
from headwater.storage.checksums import OTHER, Kept

Kind = Literal["data", "past", "entry", "checkpoint", "note"]
Checked = dict[tuple[int, int], tuple[int, str]]


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written, or is gone.

    Attributes:
        file: its path.
        kind: `data` of the newest version, or of `past` ones alone; an `entry` or a `checkpoint` of the log;
            a `note` of the engine's.
        why: what is wrong with it, in words.
        version: the commit that it is, or that added it; None where that is not known.
        rows: how many rows it has; None where it has none, or that is not known.
        range: which rows these are, as far as the log says: times, and Kafka's partitions and offsets.
    """

    file: Path
    kind: Kind
    why: str
    version: int | None = None
    rows: int | None = None
    range: str = ""


@dataclass
class Found:
    """What a table consists of.

    Attributes:
        files: how many files were read.
        bytes: their size.
        rows: of the newest version; None where that is not known.
        unknown: how many of the files have no checksum.
        damages: those that are not what was written.
    """

    files: int = 0
    bytes: int = 0
    rows: int | None = None
    unknown: int = 0
    damages: list[Damage] = field(default_factory=list)


def read(table: Path, checked: Checked | None = None) -> Found:
    """Read a table through.

    Args:
        table: where it lies.
        checked: what was read of other tables, and is not again where a file is the same by a link.
    """
    return _Reading(table, {} if checked is None else checked).read()


class _Reading:
    def __init__(self, table: Path, checked: Checked) -> None:
        self._table, self._log, self._checked = table, table / delta.LOG, checked
        self._found = Found()
        self._known: dict[str, list[Any]] = {}  # as `Kept.files`, of all versions that are there
        self._changes: dict[int, tuple[list[str], list[str]]] = {}  # of entries: what goes, and comes

    def read(self) -> Found:
        note = self._note(self._log / checksums.NEWEST)
        versions = sorted(delta.versions(self._table), reverse=True)
        kept = self._checkpoints()
        self._entries(note, versions, -1 if kept is None else kept.version)
        live = self._live(kept, versions)
        counts = [rows for _, rows, _ in live.values()]
        self._found.rows = None if None in counts else sum(counts)
        for path, known in {**self._known, **live}.items():
            self._data(path, known, is_live=path in live)
        return self._found

    def _entries(self, note: dict[str, Any] | None, versions: list[int], kept: int) -> None:
        """Read the log, the newest entry first; its changes are needed after the version `kept`."""
        newest = max([*versions[:1], *([note["version"]] if note else [])], default=-1)
        if not versions:
            self._damaged(self._log, "entry", "holds no entry: the table is gone")
        says = note
        for version in range(newest, versions[-1] - 1 if versions else newest, -1):
            told = says if says and says["version"] == version else None
            if told:
                self._learn(told["files"], version)
            actions = self._entry(version, told["entry"] if told else None)
            says = None
            if actions is not None:
                if version > kept:
                    gone = [unquote(one["remove"]["path"]) for one in actions if "remove" in one]
                    come = [path for path, _ in checksums.added(one for one in actions if "add" in one)]
                    self._changes[version] = gone, come
                said = checksums.said(actions)
                for path, rows in checksums.added(actions):
                    self._known.setdefault(path, [None, None, None])[1:] = [rows, version]
                self._learn(said.get("files", {}), version)
                says = said.get("before")

    def _entry(self, version: int, checksum: int | None) -> list[dict[str, Any]] | None:
        file = delta.entry(self._table, version)
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            if version >= log.first(self._table):  # else it was just cleaned away
                self._damaged(file, "entry", "is gone", version)
            return None
        self._count(len(content), checksum)
        if checksum is not None and zlib.crc32(content) != checksum:
            self._damaged(file, "entry", OTHER, version)
            return None
        try:
            actions = delta.parsed(content)
            list(checksums.added(actions)), checksums.said(actions)
            if not actions:
                raise ValueError("it is empty")
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            self._damaged(file, "entry", f"can't be read: {first_line(e)}", version)
            return None
        return actions

    def _checkpoints(self) -> Kept | None:
        """Read the log's checkpoints; the files that the newest of them has, as its checksums say."""
        newest: dict[str, Any] | None = None
        for file in sorted(self._log.glob("*.checkpoint.parquet"), reverse=True):
            version = int(file.name[:20])
            beside = self._note(checksums.beside(self._table, version))
            self._compare(file, "checkpoint", beside["checkpoint"] if beside else None, version)
            if beside is not None:
                for path, known in beside["files"].items():
                    self._known.setdefault(path, list(known))
                newest = newest or {**beside, "version": version}
        if newest is None:
            return None
        self._hint(newest["version"], newest["hint"])
        return Kept(newest["version"], newest["files"])

    def _hint(self, version: int, checksum: int | None) -> None:
        """Read which checkpoint is the newest; one that was made since has no checksums yet."""
        file = self._log / delta.LAST_CHECKPOINT
        with suppress(FileNotFoundError):
            found = checksums.of(file)
            self._count(file.stat().st_size, checksum)
            said, _ = log.checkpoint(self._table)  # once it was read: it may have been written just before
            is_new = said > version and delta.checkpoint(self._table, said).exists()
            if checksum not in (None, found) and not is_new:
                self._damaged(file, "checkpoint", OTHER, version)

    def _live(self, kept: Kept | None, versions: list[int]) -> dict[str, list[Any]]:
        """The files of the newest version, as `Kept.files`."""
        if kept is None and versions and versions[-1] > 0 and self._is_whole:
            try:
                kept = Kept.read(self._table, versions[-1])
            except (HeadwaterError, DeltaError, OSError) as e:
                self._damaged(self._log, "entry", f"can't be read: {first_line(e)}")
        live = dict(kept.files) if kept else {}
        for version in sorted(self._changes):
            gone, come = self._changes[version]
            for path in gone:
                live.pop(path, None)
            live.update({path: [None, None, version] for path in come})
        return {path: self._known.get(path, known) for path, known in live.items()}

    def _data(self, path: str, known: list[Any], *, is_live: bool) -> None:
        file, (checksum, rows, version) = self._table / path, known
        if file.exists():
            self._compare(file, "data" if is_live else "past", checksum, version, path, rows)
        elif is_live and path in _files(self._table):  # else it went meanwhile
            self._damaged(file, "data", "is gone", version, path, rows)

    def _compare(
        self,
        file: Path,
        kind: Kind,
        checksum: int | None,
        version: int | None,
        path: str = "",
        rows: int | None = None,
    ) -> None:
        """Read a file, and see whether it is what was written."""
        try:
            about = file.stat()
            self._count(about.st_size, checksum)
            inode = (about.st_dev, about.st_ino)
            if checksum is None:
                why = _as_parquet(file, rows)
            elif inode in self._checked and self._checked[inode][0] == checksum:
                why = self._checked[inode][1]
            else:
                why = "" if checksums.of(file) == checksum else OTHER
                self._checked[inode] = (checksum, why)
        except FileNotFoundError:
            return
        except OSError as e:
            why = f"can't be read: {first_line(e)}"
        if why:
            self._damaged(file, kind, why, version, path, rows)

    @property
    def _is_whole(self) -> bool:
        """Whether others may read the log."""
        return not any(one.kind in ("entry", "checkpoint") for one in self._found.damages)

    def _note(self, file: Path) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            try:
                found = json_file.read(file, hint="")
                self._count(file.stat().st_size, 0)
                return found
            except DamageError as e:
                self._damaged(file, "note", e.message.removeprefix(f"{file} "))
        return None

    def _learn(self, files: Mapping[str, int], version: int) -> None:
        for path, checksum in files.items():
            self._known.setdefault(path, [None, None, version])[0] = checksum

    def _count(self, size: int, checksum: int | None) -> None:
        self._found.files += 1
        self._found.bytes += size
        self._found.unknown += checksum is None

    def _damaged(
        self,
        file: Path,
        kind: Kind,
        why: str,
        version: int | None = None,
        path: str = "",
        rows: int | None = None,
    ) -> None:
        which = stats.words(self._stats(path)) if path else ""
        self._found.damages.append(Damage(file, kind, why, version, rows, which))

    def _stats(self, path: str) -> dict[str, Any]:
        """What the log says of a file's rows."""
        version = self._known.get(path, [None, None, None])[2]
        with suppress(HeadwaterError):
            for action in delta.actions(self._table, version) if version is not None else []:
                if "add" in action and unquote(action["add"]["path"]) == path:
                    return dict(json.loads(action["add"].get("stats") or "{}"))
        with suppress(HeadwaterError, DeltaError):
            for row in delta.adds(delta.opened(self._table)).to_pylist() if self._is_whole else []:
                if unquote(row["path"]) == path:
                    ends = {"minValues": "min.", "maxValues": "max."}
                    return {
                        side: {name.removeprefix(of): row[name] for name in row if name.startswith(of)}
                        for side, of in ends.items()
                    }
        return {}


def _files(table: Path) -> set[str]:
    """The paths of the files that a table has now, below it; empty where its log can't be read."""
    with suppress(HeadwaterError, DeltaError, OSError):
        return set(Kept.read(table, log.head(table)).files)
    return set()


def _as_parquet(file: Path, rows: int | None) -> str:
    """What is wrong with a Parquet file whose checksum nobody knows; "" where nothing is found."""
    try:
        held = stored.count(str(file))
    except DamageError as e:
        return e.message.partition(f"{file} ")[2]
    return "" if rows is None or held == rows else f"has {held:,} rows, of which the log says {rows:,}"
