"""Building tables exactly as far as a consistent cut through live ones has read; see `versions.choose`.

A table that is built stops at each version that tables of the cut below
it have read, and last at its own. It also stops where the live one had closed windows that its rows alone
would not have closed (silent partitions, `--close`), and closes them there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headwater.errors import CommitError, FlowError
from headwater.flows.bounds import Bounds
from headwater.operations.rebuild.versions import is_at, is_there, positions, whole
from headwater.planner.event_time import NEVER, EventTime
from headwater.project.load import Project
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.ranges import Position


@dataclass(frozen=True)
class Stop:
    """What a live table had read at one of its versions.

    Attributes:
        version: which.
        read: {(flow, input) → how far it had read it}.
        references: the versions of the reference tables that a view had read.
        event_time: what was over.
    """

    version: int
    read: dict[tuple[str, str], Position]
    references: dict[str, str] = field(default_factory=dict)
    event_time: EventTime = field(default_factory=EventTime)


class Cut(Bounds):
    """What flows read that build tables as far as a cut.

    Args:
        project: the definitions.
        live: the lake.
        built: the lake as the flows see it.
        versions: the cut; see `versions.choose`.
        wants: whether a file of an input has rows that matter; None: each has.
    """

    def __init__(
        self,
        project: Project,
        live: Lake,
        built: Lake,
        versions: Mapping[str, int],
        wants: Callable[[Path], bool] | None = None,
    ) -> None:
        self._wants = wants
        self._project = project
        self._lake = live
        self._live = dict(live.places())
        self._built = built
        self.versions = dict(versions)
        self.notes: dict[str, list[str]] = {name: [] for name in versions}
        self._stops = self._all_stops()
        self._reached: dict[str, list[int]] = {name: [] for name in versions}
        self._looked = dict.fromkeys(versions, 0)
        self._lock = threading.RLock()

    def built_at(self, name: str) -> int:
        """The version of the table that is built that has read what the cut's has.

        Raises:
            CommitError: it has none: that is a defect.
        """
        if len(self._come(name)) < len(self._stops[name]):
            raise CommitError(
                f"{name} was not built as far as version {self.versions[name]}; that is a defect",
                code="NOT_BUILT_SO_FAR",
                table=name,
            )
        return self._reached[name][-1]

    def upto(self, table: str, flow: str, stream: str) -> Position | None:
        """As far as the next stop; of a table whose own stop is not reached, as far as that is by now."""
        if table not in self.versions:
            return None
        at = self._next(table).read[flow, stream]
        upto = self._where(stream, at)
        if upto is not None:
            return upto
        place = self._built.places()[stream]
        if self._project.tables[table].view:
            return Position(place.generation)
        head = log.head(place.path)  # looked at first: what is there by now is before the stop, or at it
        return self._where(stream, at) or Position(place.generation, head)

    def wants(self, stream: str, file: str) -> bool:
        """Those that matter."""
        return self._wants is None or self._wants(Path(file))

    def references(self, table: str) -> dict[str, str] | None:
        """Those of the next stop."""
        is_view = table in self.versions and self._project.tables[table].view
        return self._next(table).references if is_view else None

    def closed(self, table: str) -> EventTime | None:
        """What is over at the next stop, once all is read."""
        if table not in self.versions:
            return None
        stop, place = self._next(table), self._built.places()[table]
        return (
            stop.event_time
            if self._has_read(table, log.read(place.path, log.head(place.path)), stop)
            else None
        )

    def _next(self, table: str) -> Stop:
        reached = len(self._come(table))
        return self._stops[table][min(reached, len(self._stops[table]) - 1)]

    def _come(self, table: str) -> list[int]:
        """The versions of the table that is built that are at each of its first stops."""
        with self._lock:
            reached, stops, place = self._reached[table], self._stops[table], self._built.places().get(table)
            head = log.head(place.path) if place is not None else -1
            while place is not None and len(reached) < len(stops) and self._looked[table] <= head:
                stop = stops[len(reached)]
                commit = log.read(place.path, self._looked[table])
                event_time = EventTime.parse(commit.flows.get(table, {}).get("event_time"))
                over = event_time.is_past(stop.event_time)
                if over and self._has_read(table, commit, stop):
                    reached.append(commit.version)
                elif self._looked[table] == head:
                    break
                else:
                    self._looked[table] += 1
            return reached

    def _has_read(self, table: str, commit: log.Commit, stop: Stop) -> bool:
        """Whether a commit to the table that is built has read what a stop says."""
        is_view = self._project.tables[table].view
        for (flow, stream), at in positions(self._project, table, commit).items():
            upto = self._where(stream, stop.read[flow, stream])
            never = at.generation == 0 and stop.read[flow, stream].generation > 0
            if upto is None or (is_view and never):  # it may have rows of no rows
                return False
            place = self._built.places().get(stream)
            if place is not None and not is_at(place.path, at, upto):
                return False
        consumed = commit.flows.get(table, {}).get("consumed", {})
        return all(consumed.get(name) == {"version": at} for name, at in stop.references.items())

    def _where(self, stream: str, at: Position) -> Position | None:
        """Where a position of a live table lies in what the flows read; None: that is not built yet."""
        place = self._built.places().get(stream)
        generation = place.generation if place is not None else 1
        if stream not in self.versions or at.version <= 0:
            return replace(at, generation=generation)
        index = [stop.version for stop in self._stops[stream]].index(at.version)
        reached = self._come(stream)
        return Position(generation, reached[index]) if index < len(reached) else None

    def _all_stops(self) -> dict[str, list[Stop]]:
        """{table → where it stops, in order}."""
        wanted: dict[str, set[int]] = {name: {version} for name, version in self.versions.items()}
        found: dict[str, list[Stop]] = {}
        for name in reversed([name for name in self._project.names() if name in self.versions]):
            wanted[name] |= set(self._closings(name))
            found[name] = [self._stop(name, version) for version in sorted(wanted[name])]
            for stop in found[name]:
                for (_, stream), at in stop.read.items():
                    if stream in self.versions and at.version > 0:
                        wanted[stream].add(at.version)
        return found

    def _stop(self, name: str, version: int) -> Stop:
        """What the live table had read at a version.

        Raises:
            FlowError: it is of a generation of an input that is not the live one.
        """
        commit = log.read(self._live[name].path, version)
        read = positions(self._project, name, commit)
        for (_, stream), at in read.items():
            live = self._live.get(stream)
            if live is not None and at.generation not in (0, live.generation):
                raise FlowError(
                    f"{name} has read generation {at.generation} of {stream}, of which {live.generation} is "
                    "live",
                    code="INPUT_SWAPPED",
                    table=name,
                    hint=f"run it first: headwater run {name} --once",
                )
        mine = commit.flows.get(name, {})
        references = {
            source: at["version"]
            for source, at in mine.get("consumed", {}).items()
            if source in self._project.references
        }
        return Stop(version, read, references, EventTime.parse(mine.get("event_time")))

    def _closings(self, name: str) -> Iterator[int]:
        """The versions of a live table after which rows are late that by the rows before are not: those of a
        partition that had not come as far itself as what was closed."""
        path, names = self._live[name].path, list(self.versions)
        after: EventTime | None = None
        for version in range(self.versions[name], 0, -1):
            try:
                mine = log.read(path, version).flows.get(name, {})
            except CommitError:
                self.notes[name].append(f"what was closed before version {version + 1} is gone from its log")
                return
            before = EventTime.parse(mine.get("event_time"))
            if before.closed == NEVER:
                return
            spoke = (each for each, seen in (after or before).seen.items() if before.seen.get(each) != seen)
            if any(before.closed > before.reached.get(each, NEVER) for each in spoke):
                there = is_there(self._project, self._lake, name, version)
                if there and whole(self._project, self._lake, names, name, version):
                    yield version
                else:
                    self.notes[name].append(f"what version {version} closed by the clock can't be done again")
            after = before
