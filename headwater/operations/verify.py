"""Reading a lake through: every file that has a checksum, and the way back from what is not what was written.

That is another thing than `rebuild --verify` and `reconcile`, which compare rows with what the definitions
make of their inputs. Here nobody asks what rows mean, but whether the disk still has the bytes that were
written. No Spark is started, nothing is changed, and a run may go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.common.report import Stopwatch
from headwater.errors import DamageError, HeadwaterError, ProjectError
from headwater.errors.causes import describe
from headwater.storage import damage, json_file
from headwater.storage.damage import Checked, Damage, Found
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside

SAVEPOINTS = "_savepoints"
_COPY = "nothing else has its rows: put it back from a copy whose files are its own (headwater copy --full)"
_NOTES = {
    "_catalog.json": "remove it: the catalog says the same",
    "intent.json": "the next batch makes it anew where the tables know enough, else headwater rebuild {}",
    "definition.json": "if the table is defined as when it was made, remove it; else headwater rebuild {}",
    "topic.json": "remove it; where Spark's files beside it are gone, the alert begins where --start says",
    "position.json": "remove it: the whole table is sent again",
    "proven.json": "remove it: headwater reconcile {} proves all of the table again",
    "savepoint.json": "headwater savepoint drop {}",
    "_copy.json": "remove it if alerts and sinks of this copy may run",
}


@dataclass(frozen=True)
class Damaged:
    """A file that is not what was written, or is gone.

    Attributes:
        file: its path.
        why: what is wrong with it, in words.
        version: the commit of its table that added it; None where that is not known.
        rows: how many rows it has; None where it has none, or that is not known.
        range: which rows these are, as far as the log says: times (UTC), Kafka's partitions and offsets.
        way: the way back.
    """

    file: Path
    why: str
    version: int | None
    rows: int | None
    range: str
    way: str

    def __str__(self) -> str:
        whose = [f"{self.rows:,} rows"] if self.rows is not None else []
        whose += [f"of version {self.version}"] if self.version is not None else []
        whose += [self.range] if self.range else []
        about = f" ({', '.join(whose)})" if whose else ""
        return f"{self.file} {self.why}{about}; {self.way}"


@dataclass(frozen=True)
class Verified:
    """What was read of a table, or of other files.

    Attributes:
        table: its name; `_catalog`, `_notes` (small files of the lake), or `NAME: table` of a savepoint.
        files, bytes: how much was read.
        rows: of the newest version; None where that is not known.
        unknown: how many files have no checksum, as they are of before there were any.
        seconds: how long it took.
        damages: what is not what was written.
    """

    table: str
    files: int
    bytes: int
    rows: int | None
    unknown: int
    seconds: float
    damages: Sequence[Damaged] = ()


def verify(lake: Lake, tables: Sequence[str] = ()) -> Iterator[Verified]:
    """Read tables through, and what the engine keeps beside them; by default the whole lake.

    A savepoint's files are mostly links to those of live tables, which are read once.

    Raises:
        ProjectError: an unknown table.
        CommitError: nothing says which tables there are.
    """
    places = lake.places()
    for name in tables:
        if name not in places:
            known = ", ".join(sorted(places)) or "none"
            raise ProjectError(
                f"unknown table '{name}'", code="UNKNOWN_TABLE", table=name, hint=f"known: {known}"
            )
    checked: Checked = {}
    for name in tables or sorted(places):
        yield _table(name, lake, places, checked)
    if tables:
        return
    if places:
        yield _catalog(lake, checked)
    yield _notes("_notes", lake.root, [file for file in lake.notes() if _flow(lake, file) not in places])
    for folder in sorted((lake.root / SAVEPOINTS).glob("[!.]*")):
        yield from _savepoint(folder, checked)


def _table(name: str, lake: Lake, places: Mapping[str, Place], checked: Checked) -> Verified:
    """One table, and the notes of its flow."""
    watch = Stopwatch()
    found, owner = _read(places[name].path, checked), _owner(name, places)
    if found.damages and (now := lake.places().get(name, places[name])) != places[name]:
        found = _read(now.path, checked)  # it was swapped meanwhile
    notes = _notes(name, lake.root, [file for file in lake.notes() if _flow(lake, file) == name])
    found.files, found.bytes = found.files + notes.files, found.bytes + notes.bytes
    return _verified(name, watch, found, [*(_damaged(one, owner) for one in found.damages), *notes.damages])


def _catalog(lake: Lake, checked: Checked) -> Verified:
    watch, found = Stopwatch(), _read(lake.catalog, checked)
    way = (
        "_catalog.json says the same, and is read; the next table that is made or rebuilt writes the catalog"
    )
    return _verified("_catalog", watch, found, [_as(one, way) for one in found.damages])


def _savepoint(folder: Path, checked: Checked) -> Iterator[Verified]:
    """What a savepoint holds."""
    saved, way = Lake(folder), f"the savepoint can't be restored: headwater savepoint drop {folder.name}"
    notes = [file for file in (folder / "savepoint.json", folder / "_catalog.json") if file.exists()]
    try:
        places = {**saved.places(), "_catalog": Place("_catalog", 1, saved.catalog)}
    except HeadwaterError as e:
        damages = [Damaged(folder, e.message, None, None, "", way)]
        yield Verified(f"{folder.name}: _catalog", 0, 0, None, 0, 0.0, damages)
        return
    for name, place in sorted(places.items()):
        watch, found = Stopwatch(), _read(place.path, checked)
        yield _verified(f"{folder.name}: {name}", watch, found, [_as(one, way) for one in found.damages])
    yield _notes(f"{folder.name}: _notes", folder, notes + [f for f in saved.notes() if f not in notes])


def _verified(name: str, watch: Stopwatch, found: Found, damages: Sequence[Damaged]) -> Verified:
    return Verified(name, found.files, found.bytes, found.rows, found.unknown, watch.seconds, damages)


def _read(table: Path, checked: Checked) -> Found:
    """Read a table; whatever is raised there is one damage, and stops nothing else."""
    try:
        return damage.read(table, checked)
    except Exception as e:
        return Found(damages=[Damage(table, "entry", f"can't be read: {describe(e)}")])


def _notes(name: str, root: Path, files: Sequence[Path]) -> Verified:
    """Small files of the engine's."""
    watch, damages, size = Stopwatch(), [], 0
    for file in files:
        with suppress(FileNotFoundError):
            try:
                json_file.read(file, hint="")
                size += file.stat().st_size
            except DamageError as e:
                parts = file.relative_to(root).parts
                whose = parts[1] if parts[0] == "_flows" else root.name
                way = _NOTES.get(file.name, "remove it, if nothing is under way").format(whose)
                way = "put it back from a copy" if f"rebuild {whose}" in way and _is_history(whose) else way
                damages.append(Damaged(file, e.message.removeprefix(f"{file} "), None, None, "", way))
    return Verified(name, len(files), size, None, 0, watch.seconds, damages)


def _flow(lake: Lake, file: Path) -> str:
    """Of which flow a note is; "" where it is of none."""
    parts = file.relative_to(lake.root).parts
    return parts[1] if parts[0] == "_flows" else ""


def _owner(name: str, places: Mapping[str, Place]) -> str:
    """The table whose flow writes a table."""
    return next((each for each in places if name in beside(each)), name)


def _damaged(one: Damage, owner: str) -> Damaged:
    """A damage of a table, and the way back from it."""
    anew = _COPY if _is_history(owner) else f"headwater rebuild {owner}"
    if one.kind == "note":
        return _as(one, "remove it: the next commit, or the next checkpoint, writes it anew")
    if one.kind == "checkpoint":
        return _as(one, f"remove it if the log begins at version 0, whose entries say the same; else {anew}")
    if one.kind == "past":
        return _as(
            one,
            "the newest version does not have it: it goes with older ones (headwater maintain); a table "
            "whose flow has yet to read it is built anew (headwater rebuild)",
        )
    return _as(one, anew)


def _is_history(table: str) -> bool:
    """Whether nothing else has a table's rows."""
    return table.startswith(("bronze.", "ops."))


def _as(one: Damage, way: str) -> Damaged:
    return Damaged(one.file, one.why, one.version, one.rows, one.range, way)
