"""Rebuilding tables from the history of what they read, beside the live ones, and swapping all in one commit.

1. **Plan**: the tables and all below them get a next generation each; a small file says which.
2. **Verify**, where that is asked for: what is built ends where the live tables were at one moment (see
   `rebuild.cut`), and is compared with what they held then.
3. **Build**: the same flows as in a run, from the start of what they read, or on from the cut, as far as it
   goes; bronze and all that is not rebuilt are read as they are. Live flows go on beside it.
4. **Hold**: live flows of these tables rest between two batches while what is built takes what came last, so
   that no reader sees a table go back. They go on by themselves when this process is killed.
5. **Swap**: one commit of the catalog. Readers see all old tables or all new ones. A running `headwater run`
   goes on in the new ones, from what they have read.

Killed anywhere, the same command goes on where it was, or `abort` removes what was built. The generations
that were live stay where they are until they are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from headwater.common import times
from headwater.common.progress import Board
from headwater.errors import CommitError, FlowError, LakeError
from headwater.operations.rebuild.build import Builder, Now, Progress
from headwater.operations.rebuild.compare import Difference
from headwater.operations.rebuild.cut import Cut
from headwater.operations.rebuild.differences import differences, unprovable
from headwater.operations.rebuild.planning import is_swapped, planned
from headwater.operations.rebuild.shadow import Plan, Shadow
from headwater.operations.rebuild.since import begin_of
from headwater.planner.event_time import EventTime
from headwater.project.load import Project
from headwater.runtime import failpoints
from headwater.storage import erasure, lease, log, store
from headwater.storage.hold import hold
from headwater.storage.lake import Lake
from headwater.storage.names import beside, replay_name

CLOSE_ENOUGH = 1.0  # seconds of a pass after which the live flows are held for the last one
PASSES = 8  # at most, and while each takes half as long: it takes what came during the one before
REST = 30.0  # seconds that batches of live flows may take to end; then there is another pass


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        tables: {table → its generation now}.
        rows: how many rows were read in all.
        seconds: how long building took.
        differences: per table, how the new rows differ from the old; empty where they were not compared.
        notes: what can't be told by comparing.
        held: how many seconds the live flows of these tables rested.
        swapped: whether the new generations are the live ones.
    """

    tables: dict[str, int]
    rows: int
    seconds: float
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held: float = 0.0
    swapped: bool = True


def rebuild(
    project: Project,
    tables: Sequence[str],
    *,
    since: str = "",
    verify: bool = False,
    swap: bool = True,
    fresh_lookups: bool = False,
    erasing: bool = False,
    progress: Progress | None = None,
    notices: Board | None = None,
) -> Rebuilt:
    """Rebuild tables, and all that is derived from them.

    Args:
        project: the definitions.
        tables: their names.
        since: from when on the history is read, see `headwater.operations.rebuild.since`; "": all of it.
        verify: whether to compare old and new rows; with a difference nothing is swapped.
        swap: whether the new generations shall be the live ones; else the next call goes on.
        fresh_lookups: whether lookups are asked anew; else rows are told what they were told.
        erasing: whether it is part of an erase, beside which there is no other.
        progress: told how far it is.
        notices: where a person is told of what happens.

    Raises:
        ProjectError: an unknown table, or a bronze table.
        LakeError: another rebuild is under way, or the history has gaps, which `since` does not admit.
        LeaseError: another process is at it.
        FlowError: a flow failed, or a live one did not come to rest.
    """
    lake = Lake(project.conf.lake)
    lake.finish()
    if not erasing:
        erasure.refuse(lake)
    plan = planned(project, lake, tables, since, verify, fresh_lookups)
    names = [name for name in project.names() if name in plan.tables]
    shadow = Shadow(lake, plan)
    board = notices or Board()
    with held(shadow, names):
        failpoints.reach("planned", "rebuild")
        plan.check(lake)
        if not erasing and erasure.is_under_way(lake):  # since that was looked at
            plan.forget(lake)
            erasure.refuse(lake)
        builder = Builder(project, shadow, names, board, progress, told=None if plan.fresh_lookups else lake)
        for name in names if plan.begin else ():
            builder.begin(name, begin_of(project, name, plan.begin))
        seconds, found, notes = 0.0, list[Difference](), list[str]()
        if verify:
            cut = Cut(project, lake, shadow, plan.cut or {})
            seconds += builder(cut)
            found = differences(project, lake, shadow, names, cut)
            notes = unprovable(project, lake, names, builder.context.tables, cut)
        built = {name: plan.tables[name] for name in names}
        if any(found):
            return Rebuilt(built, builder.rows(), seconds, found, notes, swapped=False)
        before = float("inf")
        for _ in range(PASSES):
            last = builder(Now(project, shadow, names))
            seconds += last
            if last < CLOSE_ENOUGH or last > before / 2:
                break
            before = last
        failpoints.reach("rebuilt", "rebuild")
        if not swap:
            return Rebuilt(built, builder.rows(), seconds, found, notes, swapped=False)
        last, rested = _swap(project, lake, shadow, plan, builder)
        plan.forget(lake)
        return Rebuilt(built, builder.rows(), seconds + last, found, notes, rested)


def abort(project: Project) -> list[str]:
    """Remove what a rebuild that was not swapped has built; the tables that it was of.

    Raises:
        ProjectError: there is none.
        LeaseError: it is still at work.
    """
    lake = Lake(project.conf.lake)
    plan = Plan.read(lake)
    if plan is None:
        raise LakeError("no rebuild is under way", code="NO_REBUILD")
    shadow = Shadow(lake, plan)
    names = [name for name in project.names() if name in plan.tables]
    with held(shadow, names):
        plan.check(lake)
        if not is_swapped(lake, plan):
            shadow.remove(flows_into(project, names))
        plan.forget(lake)
    return names


def clean(project: Project, tables: Iterable[str] | None = None) -> int:
    """Remove the generations of tables that are neither live nor being built, and what is left of dropped
    ones; how many there were. None: of all tables.

    A sink that has last sent one of them can't go on from it.
    """
    lake = Lake(project.conf.lake)
    found = lake.finish()
    with lake.alone():  # what a flow is just making is not removed
        of = {*lake.places(), *project.tables} if tables is None else tables
        folders = {lake.at(each, 1).parent for name in of for each in (name, *beside(name))}
        there = {path for each in folders for path in store.of(each).find(each, "g[0-9]*")}
        plan = Plan.read(lake)  # behind what is there: it is written before what is built of it
        kept = {lake.at(*each) for each in plan.tables.items()} if plan else set()
        for path in there - kept - {place.path for place in lake.places().values()}:
            store.of(path).delete_all(path)
            found += 1
    return found


def _swap(project: Project, lake: Lake, shadow: Shadow, plan: Plan, builder: Builder) -> tuple[float, float]:
    """Take what came last, with the live flows at rest, and swap; the seconds of building, and of resting.

    Raises:
        FlowError: a flow failed, or a live one did not come to rest.
    """
    seconds, names = 0.0, builder.names
    for _ in range(PASSES):
        began = times.clock.monotonic()
        with hold([lake.flow_folder(name) for name in names], REST) as at_rest:
            if at_rest:
                failpoints.reach("holding", "rebuild")
                seconds += builder(Now(project, shadow, names, _over(lake, names), builder.context.heads))
                lake.swap(shadow.built(), without=plan.tables)
                failpoints.reach("swapped", "rebuild")
                return seconds, times.clock.monotonic() - began
        seconds += builder(Now(project, shadow, names))
    raise FlowError(
        f"the flows of {', '.join(names)} did not come to rest within {REST:.0f} s, so nothing was swapped",
        code="FLOWS_NOT_AT_REST",
        hint="run the same again when less is to be done",
    )


def _over(lake: Lake, names: list[str]) -> dict[str, EventTime]:
    """{table → what is over of it now}; of a broken one nobody knows."""
    found: dict[str, EventTime] = {}
    for place in filter(None, map(lake.places().get, names)):
        with suppress(CommitError):
            found[place.name] = EventTime.parse(log.flows(place.path).get(place.name, {}).get("event_time"))
    return found


@contextmanager
def held(lake: Lake, names: Iterable[str]) -> Iterator[None]:
    """Be the only one that writes these tables and sinks, or what is built of them in their place.

    Raises:
        LeaseError: another process does.
    """
    with ExitStack() as leases:
        for name in names:
            leases.callback(lease.of_live(lake, name).release)
        yield


def flows_into(project: Project, names: Sequence[str]) -> dict[str, str]:
    """{flow → the table that it writes} of all flows into these tables."""
    own = {name: name for name in names}
    into = {flow.name: name for name in names for flow in project.tables[name].flows}
    return {**own, **into, **{replay_name(flow): flow for flow in own}}


__all__ = ["Difference", "Rebuilt", "abort", "clean", "flows_into", "held", "is_swapped", "rebuild"]
