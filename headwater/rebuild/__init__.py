"""Rebuilding tables from the history of what they read, beside the live ones, and swapping all in one commit.

1. **Plan**: the tables and all below them get a next generation each; a small file says which.
2. **Build**: the same flows as in a run, from the start of what they read, as far as it goes; bronze and all
   that is not rebuilt are read as they are. Live flows go on beside it.
3. **Compare** what was built with what is live, where that is asked for.
4. **Swap**: one commit of the catalog. Readers see all old tables or all new ones. A running `headwater run`
   goes on in the new ones, from what they have read.

Killed anywhere, the same command goes on where it was, or `abort` removes what was built. The generations
that were live stay where they are until they are removed.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from headwater import analysis, failpoints
from headwater import spark as sessions
from headwater.errors import FlowError, ProjectError, describe
from headwater.flows.context import Context
from headwater.flows.declared import Flow, flow_of
from headwater.flows.replay import replay_name
from headwater.inspect import beside
from headwater.lake import Lake
from headwater.lease import Lease
from headwater.progress import Board
from headwater.project import Project
from headwater.rebuild.compare import Difference, compare
from headwater.rebuild.shadow import Plan, Shadow, generations
from headwater.status import lag
from headwater.wake import Heads

CLOSE_ENOUGH = 1.0  # seconds of the last pass: what comes in that time, the live flows take after the swap
PASSES = 8  # at most; each takes what came during the one before

Progress = Callable[[int, int], None]  # rows read, and rows to read


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        tables: {table → its generation now}.
        rows: how many rows were read in all.
        seconds: how long building took.
        differences: per table, how the new rows differ from the old; empty where they were not compared.
        swapped: whether the new generations are the live ones.
    """

    tables: dict[str, int]
    rows: int
    seconds: float
    differences: list[Difference] = field(default_factory=list)
    swapped: bool = True


def rebuild(
    project: Project,
    tables: Sequence[str],
    *,
    verify: bool = False,
    swap: bool = True,
    progress: Progress | None = None,
    notices: Board | None = None,
) -> Rebuilt:
    """Rebuild tables, and all that is derived from them.

    Args:
        project: the definitions.
        tables: their names.
        verify: whether to compare old and new rows; with a difference nothing is swapped.
        swap: whether the new generations shall be the live ones; else the next call goes on.
        progress: told how far it is.
        notices: where a person is told of what happens.

    Raises:
        ProjectError: an unknown table, a bronze table, or another rebuild is under way.
        LeaseError: another process is at it.
        FlowError: a flow failed.
    """
    lake = Lake(project.conf.lake)
    plan = _planned(project, lake, tables)
    names = [name for name in project.names() if name in plan.tables]
    shadow = Shadow(lake, plan)
    board = notices or Board()
    with _held(shadow, names):
        failpoints.reach("planned", "rebuild")
        began = time.monotonic()
        rows = _Builder(project, shadow, names, board, progress)()
        seconds = time.monotonic() - began
        failpoints.reach("rebuilt", "rebuild")
        differences = compare(project, lake, shadow, names) if verify else []
        built = {name: plan.tables[name] for name in names}
        if not swap or any(differences):
            return Rebuilt(built, rows, seconds, differences, swapped=False)
        lake.swap(shadow.built(), without=plan.tables)
        failpoints.reach("swapped", "rebuild")
        plan.forget(lake)
        return Rebuilt(built, rows, seconds, differences)


def abort(project: Project) -> list[str]:
    """Remove what a rebuild that was not swapped has built; the tables that it was of.

    Raises:
        ProjectError: there is none.
        LeaseError: it is still at work.
    """
    lake = Lake(project.conf.lake)
    plan = Plan.read(lake)
    if plan is None:
        raise ProjectError("no rebuild is under way")
    shadow = Shadow(lake, plan)
    names = [name for name in project.names() if name in plan.tables]
    with _held(shadow, names):
        if not _is_swapped(lake, plan):
            shadow.remove(_flows(project, names))
        plan.forget(lake)
    return names


def clean(project: Project) -> int:
    """Remove the generations that are neither live nor being built; how many there were.

    A sink that has last sent one of them can't go on from it.
    """
    lake = Lake(project.conf.lake)
    live, under_way = lake.places(), Plan.read(lake)
    kept = {place.path for place in live.values()}
    kept |= {lake.at(*each) for each in under_way.tables.items()} if under_way else set()
    found = 0
    for name in live:
        for path in lake.at(name, 1).parent.glob("g[0-9]*"):
            if path not in kept:
                shutil.rmtree(path)
                found += 1
    return found


@contextmanager
def _held(shadow: Shadow, names: list[str]) -> Iterator[None]:
    """Be the only one that writes what is built of these tables."""
    with ExitStack() as leases:
        for name in names:
            leases.callback(Lease(name, shadow.flow_folder(name)).release)
        yield


def _planned(project: Project, lake: Lake, tables: Sequence[str]) -> Plan:
    """The rebuild that is asked for: the one that is under way, or a new one."""
    for name in tables:
        project.definition(name)
        if name in project.topics:
            raise ProjectError(
                f"{name} is the history that others are rebuilt from; name a table below it: "
                f"{', '.join(t for t in project.below([name]) if t != name) or 'there is none'}"
            )
    names = project.below(list(tables))
    under_way = Plan.read(lake)
    if under_way is not None and _is_swapped(lake, under_way):
        under_way.forget(lake)  # a kill came between the two
        under_way = None
    if under_way is None:
        every = [each for name in names for each in (name, *beside(name))]
        plan = Plan(generations(lake, every), project.digest)
        lake.root.mkdir(parents=True, exist_ok=True)
        plan.write(lake)
        return plan
    before = [name for name in project.names() if name in under_way.tables]
    if before != names or under_way.digest != project.digest:
        what = "with other definitions" if before == names else f"of {', '.join(before)}"
        raise ProjectError(
            f"a rebuild {what} is under way; end that one first (headwater rebuild --abort removes what it "
            "built)"
        )
    return under_way


def _flows(project: Project, names: list[str]) -> dict[str, str]:
    """{flow → the table that it writes} of all flows into these tables."""
    own = {name: name for name in names}
    into = {flow.name: name for name in names for flow in project.tables[name].flows}
    return {**own, **into, **{replay_name(flow): flow for flow in own}}


def _is_swapped(lake: Lake, plan: Plan) -> bool:
    """Whether its tables are the live ones."""
    places = lake.places()
    return any(name in places and places[name].generation == plan.tables[name] for name in plan.tables)


class _Builder:
    """The flows of the tables that are rebuilt."""

    def __init__(
        self, project: Project, shadow: Shadow, names: list[str], board: Board, progress: Progress | None
    ) -> None:
        self._shadow, self._names, self._board = shadow, names, board
        self._progress = progress
        spark = sessions.start(project.conf)
        self._context = Context(
            project=project,
            tables=analysis.analyse(spark, project),
            spark=spark,
            lake=shadow,
            bootstrap="",
            once=True,
            start="earliest",
            trigger=None,
            board=board,
            heads=Heads(),
        )
        for name in project.names():
            if name not in names:
                self._context.heads.end(name)
        self._errors: dict[str, Exception] = {}

    def __call__(self) -> int:
        """Build until all is there; how many rows were read."""
        flows = {name: flow_of(self._context, name) for name in self._names}
        for _ in range(PASSES):
            began = time.monotonic()
            self._pass(flows)
            if time.monotonic() - began < CLOSE_ENOUGH:
                break
        return self._read()

    def _pass(self, flows: dict[str, Flow]) -> None:
        """Take all that there is."""
        self._context.heads.begin(self._names)
        threads = [
            threading.Thread(target=self._run, args=(name, flow), name=name, daemon=True)
            for name, flow in flows.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                self._tell()
        if self._errors:
            name, error = next(iter(self._errors.items()))
            raise FlowError(f"the rebuild of {name} stopped: {describe(error)}; then run the same again")

    def _run(self, name: str, flow: Flow) -> None:
        self._context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        try:
            flow.run()
        except Exception as e:
            self._errors[name] = e
            self._context.stop.set()
            self._context.heads.announce()
        finally:
            self._context.heads.end(name)

    def _read(self) -> int:
        return sum(flow.rows_in for flow in list(self._board.flows.values()))

    def _tell(self) -> None:
        if self._progress is not None:
            read = self._read()
            self._progress(read, read + self._left())

    def _left(self) -> int:
        """How many rows of their inputs the tables have not read."""
        return sum(lag(self._context.project, self._shadow, name, {}) or 0 for name in self._names)


__all__ = ["Difference", "Rebuilt", "abort", "clean", "rebuild"]
