"""Where tables lie: the catalog, a Delta table that maps each name to its live generation.

    <lake>/_catalog/                          name, generation, path, created_at (UTC), id
    <lake>/_catalog.json                      the same, noted before each commit: read where that can't be
    <lake>/silver/cpu_metrics/g0001/          one generation of a table: its files and its log
    <lake>/_flows/silver.cpu_metrics/g0001/   what its flow keeps beside it: lease, intent, checkpoint
    <lake>/_scratch/                          what does not fit in memory, while it is computed

One commit to the catalog may move any number of tables to other generations; readers see all of the
old ones or all of the new.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from headwater.common import times
from headwater.common.values import plain
from headwater.errors import CommitError, DamageError, LakeError
from headwater.errors.causes import first_line
from headwater.runtime import failpoints
from headwater.storage import checksums, delta, json_file, log, store

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_CATALOG = pa.schema(
    [
        ("name", pa.string()),
        ("generation", pa.int32()),
        ("path", pa.string()),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("id", pa.string()),
    ]
)
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Place:
    """Where one generation of a table lies.

    Attributes:
        name: the table's.
        generation: from 1.
        path: the Delta table.
        id: of the table: the same in all its generations, another one once it was removed and made again.
    """

    name: str
    generation: int
    path: Path
    id: str = ""


class Lake:
    """The lake below one folder.

    Args:
        root: the folder; it is made by the first table.

    Attributes:
        catalog: the Delta table of where the others lie.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._store = store.of(root)
        self.catalog = root / "_catalog"
        self._noted = root / "_catalog.json"
        self._read: tuple[int, dict[str, Place]] = (-2, {})  # one value: a run's threads read it at once

    def flow_folder(self, flow: str, table: str | None = None) -> Path:
        """The folder of what a flow keeps beside the generation of its table: of its own name, or another."""
        place = self.places().get(table or flow)
        return self.flow_at(flow, place.generation if place else 1)

    def places(self) -> dict[str, Place]:
        """Every table's live generation, by name."""
        version, (at, places) = log.head(self.catalog), self._read
        if version != at:
            places = {
                row["name"]: Place(row["name"], row["generation"], self.root / row["path"], row["id"])
                for row in self._rows(version)
            }
            self._read = version, places
        return places

    def _rows(self, version: int) -> list[dict[str, Any]]:
        """What the catalog holds: as was noted before that version was made, or else as it says itself.

        Raises:
            CommitError: nothing says what it holds.
        """
        with suppress(FileNotFoundError, DamageError):
            noted = json_file.read(self._noted, hint="")
            if version in (-1, noted["version"]):
                return list(noted["tables"])
        why: Exception | None = None
        if version >= 0:
            try:
                return list(delta.opened(self.catalog, version).to_pyarrow_table().to_pylist())
            except (CommitError, DeltaError, OSError, pa.ArrowException) as e:
                why = e
        if why is None and not self._store.find(self.root, f"*/*/g[0-9]*/{delta.LOG}"):
            return []  # nothing was ever written
        newest = log.head(self.catalog)
        if newest > version:  # it was made just now, with the first tables, or that version's entry is gone
            return self._rows(newest)
        raise CommitError(
            f"{self.catalog} {f'can not be read: {first_line(why)}' if why else 'is gone'}",
            code="CATALOG_MISSING",
            file=self.catalog,
            hint="put it back from a copy",
        )

    def place(self, name: str) -> Place:
        """The table's live generation.

        Raises:
            LakeError: nothing has been written to it yet.
        """
        places = self.places()
        if name not in places:
            raise LakeError(
                f"{name} holds nothing yet: no flow has written it",
                code="TABLE_EMPTY",
                table=name,
                hint=f"run: headwater run {name} --once",
            )
        return places[name]

    def create(
        self,
        name: str,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str],
        comment: str = "",
        anew: bool = False,
    ) -> Place:
        """The table's live generation; where there is none, or one `anew` is asked for, it is made and empty.

        Args:
            name: `<layer>.<name>`.
            schema, comment, properties: its columns, its description, and Delta's beside the engine's own.
        """
        with _LOCK, self.alone():
            known = self.places().get(name)
            if known is not None and log.exists(known.path) and not anew:
                return known
            self.begin()
            place = self._new(name, anew=anew)
            if log.exists(place.path):
                return self._register(place)
            checksums.create(
                place.path,
                Schema.from_arrow(schema),
                mode="ignore",
                name=name,
                description=comment or None,
                configuration={"delta.checkpointInterval": "1000000000", **properties},
            )
            return self._register(place)

    def begin(self) -> None:
        """Make the catalog of a lake without tables: one that has some, and no catalog, has lost it."""
        if not self.places() and not log.exists(self.catalog):
            checksums.create(self.catalog, Schema.from_arrow(_CATALOG), mode="ignore")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from making tables, and from adding to those that several write."""
        with self._store.lock(self.root / "_catalog.lock") as lock:
            lock.take(float("inf"))
            yield

    def swap(self, places: Mapping[str, Place], without: Iterable[str] = ()) -> None:
        """Let these generations be the live ones, and have some tables no more: in one commit."""
        with _LOCK, self.alone():
            self._swap(places, without)

    def _swap(self, places: Mapping[str, Place], without: Iterable[str]) -> None:
        gone = set(without)
        kept = {name: place for name, place in self.places().items() if name not in gone}
        self._write({**kept, **places}.values())

    def drop(self, tables: Iterable[str], flows: Iterable[str]) -> None:
        """Have tables no more, in one commit; `finish` deletes what they held, and their flows' folders."""
        names = list(tables)
        folders = [self.at(name, 1).parent for name in names]
        folders += [self.flow_at(flow, 1).parent for flow in flows]
        held = {"tables": names, "folders": [str(folder.relative_to(self.root)) for folder in folders]}
        with _LOCK, self.alone():  # who finds the note before the commit takes it for that of one killed
            json_file.write(self.root / f"_drop.{names[0]}.json", held)
            failpoints.reach("noted", names[0])
            self._swap({}, names)

    def finish(self) -> int:
        """Delete what is left of dropped tables, before others may have their names; how many there were."""
        notes = self._store.find(self.root, "_drop.*.json")
        if not notes:
            return 0
        found = 0
        with _LOCK, self.alone():
            for file in filter(self._store.exists, notes):
                hint = f"remove it, and what is left of {file.name[6:-5]} in {self.root}"
                held = json_file.read(file, hint=hint)
                names = held["tables"]
                if not self.places().keys() & set(names):  # else the drop was killed before its commit
                    found += len(names)
                    for folder in held["folders"]:
                        self._store.delete_all(self.root / folder)
                self._store.delete(file)
        return found

    def notes(self) -> list[Path]:
        """The small files of the engine's that end in a checksum: of the lake, and of its flows, those of
        generations that are over aside."""
        flows = self.root / "_flows"
        now = [note for note in flows.glob("*/*/*.json") if not self.is_over(note.parent)]
        alerts = flows.glob("*/*/checkpoint/*.json")
        return [*sorted(self.root.glob("*.json")), *sorted(now), *sorted(alerts)]

    def is_over(self, folder: Path) -> bool:
        """Whether a flow's folder is of a generation of its table that was live before this one."""
        live = self.places().get(folder.parent.name)
        return live is not None and folder.name[1:].isdecimal() and int(folder.name[1:]) < live.generation

    def at(self, name: str, generation: int) -> Path:
        """Where a generation of a table lies."""
        return self.root / name.replace(".", "/") / f"g{generation:04d}"

    def flow_at(self, flow: str, generation: int) -> Path:
        """Where what a flow keeps beside a generation of its table lies."""
        return self.root / "_flows" / flow / f"g{generation:04d}"

    def _new(self, name: str, *, anew: bool = False) -> Place:
        """Where a table will lie that is not there, not any more, or of which there shall be another one."""
        gone = None if anew else self.places().get(name)
        generation = gone.generation if gone else self._after(name, commits=0 if anew else 1)
        return Place(name, generation, self.at(name, generation), uuid.uuid4().hex)

    def _after(self, name: str, *, commits: int) -> int:
        """The first generation of a table after those that have had so many commits."""
        folders = self._store.find(self.at(name, 1).parent, "g[0-9]*")
        return 1 + max((int(folder.name[1:]) for folder in folders if log.head(folder) >= commits), default=0)

    def _register(self, place: Place) -> Place:
        """Note in the catalog where a table lies."""
        self._write({**self.places(), place.name: place}.values())
        return place

    def _row(self, place: Place) -> dict[str, object]:
        path = str(place.path.relative_to(self.root))
        return {
            "name": place.name,
            "generation": place.generation,
            "path": path,
            "created_at": times.now(),
            "id": place.id,
        }

    def _write(self, places: Iterable[Place]) -> None:
        """Let these be all tables, in one commit of the catalog; one that can't be read is set aside."""
        rows = [self._row(place) for place in places]
        catalog: DeltaTable | Path = self.catalog
        if log.exists(self.catalog):
            try:
                catalog = delta.opened(self.catalog)
            except CommitError:
                self._store.rename(self.catalog, self.catalog.with_name(f"_catalog.{uuid.uuid4().hex[:8]}"))
        head = log.head(self.catalog)
        json_file.write(self._noted, {"version": head + 1, "tables": plain(rows)})
        write = partial(
            write_deltalake,
            catalog,
            pa.Table.from_pylist(rows, schema=_CATALOG),
            mode="overwrite",
            commit_properties=CommitProperties(
                custom_metadata={checksums.KEY: checksums.next_says(self.catalog, head, {})},
                max_commit_retries=0,
            ),
            post_commithook_properties=NO_HOOKS,
        )
        self._store.by_others(self.catalog, write)
        checksums.note(self.catalog, head + 1)
