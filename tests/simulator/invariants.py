"""What must hold of a lake, at any moment for who reads it, and when all is done."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from headwater.errors import CommitError
from headwater.storage import delta, log
from headwater.storage.intent import intents_of
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside
from headwater.storage.ranges import Position

from .flows import (
    BRONZE,
    COPY,
    GOLD,
    KEYS,
    LATE,
    QUARANTINE,
    REPLAY,
    RESOLVED,
    SILVER,
    TOPIC,
    Project,
    is_bad_for_good,
)
from .world import World


class Swapped(Exception):  # noqa: N818 (nothing is wrong)
    """Another generation became the live one while somebody looked."""


class View:
    """A reader, who looks up where the tables are, and then reads them: each table before those that are
    committed before it.

    Args:
        world: where the lake is; a reader takes steps as others do.
        project: the definitions.
    """

    def __init__(self, world: World, project: Project) -> None:
        self._world, self._project = world, project
        self._lake = Lake(world.root)
        self._places = self._lake.places()
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self.end: int | None = None  # how many records of the topic silver has taken, where that is known

    def check(self) -> None:
        """Find nothing lost, doubled or half there."""
        self.check_generations()
        with suppress(Swapped):
            if GOLD in self._places:
                self._check_gold()
            if SILVER in self._places:
                self._check_silver()

    def check_generations(self) -> None:
        """The tables are all of before a swap, or all of after it."""
        for name, source in zip(self._project.chain[1:], self._project.chain, strict=False):
            if name in self._places and source in self._places:
                flows = log.flows(self._places[name].path)
                read = flows.get(name, {}).get("consumed", {}).get(source)
                if read is not None and self._is_live(name) and self._is_live(source):
                    assert read["generation"] == self._places[source].generation, (
                        name,
                        read,
                        self._places[source],
                    )

    def _check_silver(self) -> None:
        flows, rows = self._newest(SILVER)
        end = self._read_of_bronze(flows.get(SILVER, {}).get("consumed", {}).get(BRONZE))
        held = [row["offset"] for row in self._newest(QUARANTINE)[1]]
        self._same_generation(SILVER)
        direct = [row["offset"] for row in rows if row["try"] >= 0]
        back = [row["offset"] for row in rows if row["try"] < 0]
        if end is not None:
            self.end = end
            taken = sorted([*direct, *(at for at in held if at < end)])
            assert taken == list(range(end)), f"silver and its quarantine have {taken}, of {end} records"
        assert _once(back) and {*back} <= {*held}, f"replayed {back}, of {sorted(held)}"
        if back:
            resolved = [row["offset"] for row in self._newest(RESOLVED)[1] if row["outcome"] == "replayed"]
            self._same_generation(SILVER)
            assert _once(resolved) and {*back} <= {*resolved}, f"replayed {back}, noted {resolved}"

    def _check_gold(self) -> None:
        flows, counts = self._newest(GOLD)
        read = flows.get(GOLD, {}).get("consumed", {}).get(SILVER)
        late = [row["offset"] for row in self._newest(LATE)[1]]
        self._same_generation(GOLD)
        if SILVER not in self._places:
            return
        taken = self._appended(self._places[SILVER], read)
        if taken is None:
            return
        wanted = Counter(taken)
        wanted.subtract(at for at in late if at in wanted)
        assert all(n in (0, 1) for n in wanted.values()), f"late {sorted(late)} of {sorted(taken)}"
        offsets = [at for at, n in wanted.items() if n]
        have = {row["k"]: (row["n"], row["last"]) for row in counts}
        assert len(have) == len(counts)
        mine = {k: [at for at in offsets if at % KEYS == k] for k in range(KEYS)}
        assert have == {k: (len(of), max(of)) for k, of in mine.items() if of}, f"gold has {have}, of {mine}"

    def _newest(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What a table's newest version says of its flows, and its rows."""
        place = self._lake.places().get(name)
        if place is None:
            return {}, []
        version = log.head(place.path)
        files = files_of(place.path, version)
        flows = log.read(place.path, version).flows
        self._world.step("read", place.path, is_write=False)
        return flows, [row for file in files for row in self._read(file)]

    def _read(self, file: str) -> list[dict[str, Any]]:
        if file not in self._rows:
            self._rows[file] = _read(file)
        return self._rows[file]

    def _read_of_bronze(self, read: dict[str, Any] | None) -> int | None:
        """How many records the topic had at a position in bronze; None: nothing says it any more."""
        if read is None:
            return 0
        at = Position.parse(read)
        if at.snapshot is not None:
            return None
        place = self._places[BRONZE]
        try:
            flows = log.read(place.path, at.version).flows if at.version >= 0 else {}
            end = int(flows.get(BRONZE, {}).get("consumed", {}).get(TOPIC, {}).get("0", 0))
            part = log.read(place.path, at.version + 1).added[: at.files] if at.files else ()
        except CommitError:
            return None
        return end + sum(file.rows for file in part)

    def _appended(self, place: Place, read: dict[str, Any] | None) -> list[int] | None:
        """The offsets of the rows of an appended table up to a position; None: its beginning is gone."""
        if read is None:
            return []
        at = Position.parse(read)
        if at.generation != place.generation or at.snapshot is not None:
            return None
        try:
            commits = list(log.commits(place.path, after=-1, upto=at.version))
            part = log.read(place.path, at.version + 1).added[: at.files] if at.files else ()
            files = [file.path for commit in commits for file in commit.added] + [file.path for file in part]
            return [row["offset"] for file in files for row in self._read(file)]
        except (CommitError, FileNotFoundError):
            return None

    def _same_generation(self, name: str) -> None:
        if not self._is_live(name):
            raise Swapped

    def _is_live(self, name: str) -> bool:
        return Lake(self._world.root).places().get(name) == self._places[name]


def check_all(world: World, project: Project, *, expired: bool, replays: bool = True) -> None:
    """All is done: every record is where it belongs, once, and so the log says.

    Args:
        world: where the lake is.
        project: the definitions.
        expired: whether bronze may have let go of rows.
        replays: whether what was replayed is there: not where one of the tables was put back.
    """
    lake = Lake(world.root)
    View(world, project).check()
    places = lake.places()
    for place in places.values():
        _check_log(place)
    flows = log.flows(places[BRONZE].path)
    assert flows[BRONZE]["consumed"] == {TOPIC: {"0": project.end}}
    bronze = _rows(places[BRONZE])
    if not expired:
        assert [row["offset"] for row in bronze] == list(range(project.end)), "bronze's rows, in their order"
    silver, held = _rows(places[SILVER]), _rows(places.get(QUARANTINE))
    direct = [row["offset"] for row in silver if row["try"] >= 0]
    assert sorted([*direct, *(row["offset"] for row in held)]) == list(range(project.end))
    if GOLD in project.chain:
        late = Counter(row["offset"] for row in _rows(places.get(LATE)))
        here = Counter(row["offset"] for row in silver)
        here.subtract(late)
        assert all(n in (0, 1) for n in here.values()), "a row is counted, or late"
        counted = Counter(at % KEYS for at, n in here.items() if n)
        assert {row["k"]: row["n"] for row in _rows(places[GOLD])} == counted
    if COPY in project.chain:
        assert _by_key(places[COPY]) == _by_key(places[GOLD])
    for name in project.names():
        flows = log.flows(places[name].path)
        for place in (places[other] for other in beside(name) if other in places):
            assert not log.is_past(log.read(place.path, log.head(place.path)), flows), (
                f"{place.name} is ahead"
            )
    if replays:
        _check_replays(silver, places)
    live = {lake.flow_folder(name) for name in project.names()} | {lake.flow_folder(REPLAY, SILVER)}
    for intents in intents_of(lake):
        intent = intents.read()
        if intents._path.parent in live - {lake.flow_folder(BRONZE)}:  # of the topic the next batch does it
            assert intent is None or intent.sealed, f"{intent} is not sealed"


def check_replayed(lake: Lake) -> None:
    """After a replay to which nothing happened, all is in the table that is not bad for good."""
    places = lake.places()
    held = {row["offset"] for row in _rows(places.get(QUARANTINE))}
    back = {row["offset"] for row in _rows(places[SILVER]) if row["try"] < 0}
    assert back == {at for at in held if not is_bad_for_good(at)}, (
        f"of {sorted(held)} {sorted(back)} are back"
    )


def _check_replays(silver: list[dict[str, Any]], places: dict[str, Place]) -> None:
    """What was put back is in the table and in the ledger, each time by both commits."""
    back = sorted(row["offset"] for row in silver if row["try"] < 0)
    noted = sorted(row["offset"] for row in _rows(places.get(RESOLVED)) if row["outcome"] == "replayed")
    assert back == noted, f"replayed {back}, noted {noted}"
    done = [log.last(log.flows(places[name].path), REPLAY) for name in (SILVER, RESOLVED) if name in places]
    assert len({*done}) == 1 or (RESOLVED not in places and done == [-1]), f"replays {done}"


def files_of(table: Path, version: int) -> list[str]:
    """The files of a version, in order: by the log's entries, or by delta-rs where the first are gone."""
    try:
        if log.first(table) == 0:
            return _by_entries(table, version)
    except CommitError:  # maintenance may remove some while they are read
        if log.first(table) == 0:
            raise
    return [file.path for file in log.snapshot(table, version)]


def _by_entries(table: Path, version: int) -> list[str]:
    found: dict[str, int] = {}
    for at in range(version + 1):
        for action in delta.actions(table, at):
            if "add" in action:
                found[str(table / unquote(action["add"]["path"]))] = action["add"]["modificationTime"]
            elif "remove" in action:
                found.pop(str(table / unquote(action["remove"]["path"])), None)
    return sorted(found, key=lambda file: found[file])


def check_left(project: Project, lake: Lake) -> None:
    """After maintenance, long after all is done, the tables' folders have no file that no version knows."""
    for place in lake.places().values():
        known = {*files_of(place.path, log.head(place.path))}
        for commit in log.commits(place.path, after=log.first(place.path) - 1, upto=log.head(place.path)):
            known |= {*commit.left, *(file.path for file in (*commit.added, *commit.changes))}
        found = {
            os.path.join(at, name)
            for at, _, names in os.walk(place.path)
            for name in names
            if name.endswith(".parquet") and delta.LOG not in at
        }
        assert found <= known, f"{place.name}: nobody knows {sorted(found - known)}"


def _check_log(place: Place) -> None:
    """A log has no gap, names files that are there, and has each batch of a flow once, in its order."""
    versions = sorted(delta.versions(place.path))
    assert versions == list(range(versions[0], versions[-1] + 1)), f"{place.name} has versions {versions}"
    for file in files_of(place.path, versions[-1]):
        assert Path(file).exists(), f"{place.name}: {file} is gone"
    done: dict[str, int] = {}
    for commit in log.commits(place.path, after=versions[0] - 1, upto=versions[-1]):
        for flow, batch in commit.batches.items():
            assert batch > done.get(flow, -1), f"{place.name}: {flow} has batch {batch} after {done[flow]}"
            assert versions[0] > 0 or place.name != BRONZE or batch == done.get(flow, -1) + 1
            done[flow] = batch


def _rows(place: Place | None) -> list[dict[str, Any]]:
    if place is None:
        return []
    files = files_of(place.path, log.head(place.path))
    return [row for file in files for row in _read(file)]


def _read(file: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file, partitioning=None, use_threads=False).to_pylist()
    return rows


def _by_key(place: Place) -> dict[int, dict[str, Any]]:
    return {row["k"]: row for row in _rows(place)}


def _once(offsets: list[int]) -> bool:
    return len({*offsets}) == len(offsets)
