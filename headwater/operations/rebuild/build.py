"""The flows of tables that are built beside the live ones: the same as in a run, in passes that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from headwater.common.progress import Board
from headwater.errors import FlowError
from headwater.errors.causes import data_of, describe
from headwater.errors.codes import Code
from headwater.flows.bounds import Answered, Bounds
from headwater.flows.context import Context
from headwater.flows.declared import Flow, flow_of
from headwater.operations.rebuild.versions import is_at, positions
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.planner.event_time import EventTime
from headwater.project.load import Project
from headwater.query.inspect.status import lag
from headwater.runtime import sessions
from headwater.storage import log
from headwater.storage.erasure import Offsets, erased
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.ranges import Position
from headwater.storage.wake import Heads

Progress = Callable[[int, int], None]  # rows read, and rows to read
TELLING = 50  # times as long as counting what is left takes, it is not counted again


class Now(Bounds):
    """All that there is at a moment of the tables that are not built.

    Args:
        project: the definitions.
        lake: as the flows see it.
        names: the tables that are built.
        over: {table → what is over of it when all is read}.
        heads: which inputs have ended.
    """

    def __init__(
        self,
        project: Project,
        lake: Lake,
        names: Sequence[str],
        over: Mapping[str, EventTime] | None = None,
        heads: Heads | None = None,
    ) -> None:
        self._project, self._lake = project, lake
        self._over, self._heads = over or {}, heads or Heads()
        self._ends = {
            name: Position(place.generation, log.head(place.path))
            for name, place in lake.places().items()
            if name not in names
        }

    def upto(self, table: str, flow: str, stream: str) -> Position | None:
        """As far as it went then."""
        return self._ends.get(stream)

    def outrun(self, streams: Iterable[str]) -> None:
        """As far as these go by now: who has waited for another input for long may find that version gone."""
        places = self._lake.places()
        for name in (name for name in streams if name in self._ends):
            self._ends[name] = Position(places[name].generation, log.head(places[name].path))

    def closed(self, table: str) -> EventTime | None:
        """What is told, once all is read."""
        if table not in self._over:
            return None
        place = self._lake.places()[table]
        read = positions(self._project, table, log.read(place.path, log.head(place.path)))
        all_of_it = all(self._is_read(stream, at) for (_, stream), at in read.items())
        return self._over[table] if all_of_it else None

    def _is_read(self, stream: str, at: Position) -> bool:
        place = self._lake.places().get(stream)
        if place is None or at.is_over:
            return True
        ended = self._heads.ended(stream)  # asked for first: then the head stays
        end = self._ends.get(stream) or Position(place.generation, log.head(place.path))
        return ended and is_at(place.path, at, end)


class _Bounds(Bounds):
    """Those of the pass that runs.

    Args:
        told: the live lake, whose rows were told what they are told again; None: lookups are asked anew.
    """

    def __init__(self, told: Lake | None) -> None:
        self.now, self._told = Bounds(), told

    def upto(self, table: str, flow: str, stream: str) -> Position | None:
        return self.now.upto(table, flow, stream)

    def outrun(self, streams: Iterable[str]) -> None:
        self.now.outrun(streams)

    def wants(self, stream: str, file: str) -> bool:
        return self.now.wants(stream, file)

    def references(self, table: str) -> dict[str, str] | None:
        return self.now.references(table)

    def answered(self, table: str) -> Answered | None:
        return Answered.of(self._told.places(), table, self._erased) if self._told else None

    def closed(self, table: str) -> EventTime | None:
        return self.now.closed(table)

    @cached_property
    def _erased(self) -> Offsets:
        """The records that an erase is taking out, as long as this rebuild is a part of it."""
        return erased(self._told) if self._told else {}


class Builder:
    """The flows of tables that are built.

    Args:
        project: the definitions.
        lake: as the flows see it.
        names: the tables, in the order of the graph.
        board: where the flows say what they do.
        progress: told how far they are.
        tables: the definitions, analysed, where they are already.
        told: the live lake, whose rows were told what they are told again; None: lookups are asked anew.
    """

    def __init__(
        self,
        project: Project,
        lake: Lake,
        names: list[str],
        board: Board,
        progress: Progress | None = None,
        tables: dict[str, Analysed] | None = None,
        told: Lake | None = None,
    ) -> None:
        self._lake, self.names, self._board, self._progress = lake, names, board, progress
        self._bounds = _Bounds(told)
        spark = sessions.start(project.conf)
        analysed = tables or analysis.analyse(spark, project)
        self.context = Context(project, analysed, spark, lake, board, bounds=self._bounds)
        for name in project.names():
            if name not in names:
                self.context.heads.end(name)
        self._told_next = 0.0
        self._errors: dict[str, BaseException] = {}
        self._flows: dict[str, Flow] = {}

    def begin(self, name: str, consumed: Mapping[str, Mapping[str, Any]]) -> None:
        """Let the flows into a table begin where its inputs are read from, those that have not begun.

        Args:
            name: the table.
            consumed: {flow → input → the position to go on from}.
        """
        begun = self.context.open(self.context.project.tables[name]).flows
        self.pass_over(name, {flow: read for flow, read in consumed.items() if flow not in begun})

    def pass_over(self, name: str, consumed: Mapping[str, Mapping[str, Any]]) -> None:
        """Let the flows into a table have read up to positions, without rows of what lies before them."""
        target = self.context.open(self.context.project.tables[name])
        for flow, read in consumed.items():
            identity = Identity(flow, target.place.generation, target.last(flow) + 1, dict(read))
            target.append([], identity)

    def __call__(self, bounds: Bounds) -> float:
        """Build all that is within these bounds; how many seconds that took.

        Raises:
            FlowError: a flow failed.
        """
        began = time.monotonic()
        self._bounds.now = bounds
        self._flows = self._flows or {name: flow_of(self.context, name) for name in self.names}
        self.context.heads.begin(self.names)
        threads = [
            threading.Thread(target=self._run, args=(name,), name=name, daemon=True) for name in self.names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                self._tell()
        if self._errors:
            name, error = next(iter(self._errors.items()))
            data = data_of(error)
            code: Code = data["code"] if data else "BUILD_FAILED"
            why = f"building {name} stopped: {describe(error)}"
            raise FlowError(why, code=code, table=name, hint="then run the same again")
        return time.monotonic() - began

    def rows(self) -> int:
        """How many rows were read in all."""
        return sum(flow.rows_in for flow in list(self._board.flows.values()))

    def _run(self, name: str) -> None:
        try:
            self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            self._flows[name].run()
        except BaseException as e:  # of a function that exits, or delta-rs that panics, too
            self._errors[name] = e
            self.context.stop.set()
            self.context.heads.announce()
        finally:
            self.context.heads.end(name)

    def _tell(self) -> None:
        """Say how far it is; what is left is counted commit by commit, so not more often than is cheap."""
        began = time.monotonic()
        if self._progress is not None and began >= self._told_next:
            read = self.rows()
            left = sum(lag(self.context.project, self._lake, name, {}) or 0 for name in self.names)
            self._progress(read, read + left)
            now = time.monotonic()
            self._told_next = now + max(0.5, TELLING * (now - began))
