"""What is to be built: one rebuild at a time, of a lake that stays what it was when that was planned."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import LakeError, ProjectError
from headwater.operations.rebuild.shadow import Plan, generations
from headwater.operations.rebuild.since import check_whole, history_of, positions
from headwater.operations.rebuild.versions import choose
from headwater.project.load import Project
from headwater.storage import log, past, store
from headwater.storage.lake import Lake
from headwater.storage.names import beside
from headwater.storage.ranges import Position


def planned(
    project: Project, lake: Lake, tables: Sequence[str], since: str, verify: bool, fresh: bool
) -> Plan:
    """The rebuild that is asked for: the one that is under way, or a new one, which is kept.

    Args: see `headwater.operations.rebuild.rebuild`.

    Raises:
        ProjectError: an unknown table, or a bronze table.
        LakeError: another one is under way, or the history has gaps, which `since` does not admit.
    """
    for name in tables:
        project.definition(name)
        if name in project.raw:
            raise ProjectError(
                f"{name} is the history that others are rebuilt from",
                code="TABLE_IS_HISTORY",
                table=name,
                hint="name a table below it: "
                f"{', '.join(t for t in project.below([name]) if t != name) or 'there is none'}",
            )
    names = project.below(list(tables))
    places, under_way = lake.places(), Plan.read(lake)
    if under_way is not None and is_swapped(lake, under_way):
        under_way.forget(lake)  # a kill came between the two
        under_way = None
    if under_way is None:
        history = history_of(project, names)
        if not since:
            check_whole(lake, project, names, history)
        begin = positions(project, lake, names, history, since)
        every = [each for name in names for each in (name, *beside(name))]
        cut = choose(project, lake, [name for name in project.names() if name in names]) if verify else None
        built = generations(lake, every)
        plan = Plan(built, project.digest, cut, since=since, begin=begin, fresh_lookups=fresh)
        store.of(lake.root).make(lake.root)
        try:
            plan.write(lake)
        except FileExistsError:  # another one has begun meanwhile
            return planned(project, lake, tables, since, verify, fresh)
        with past.forgetting(lake):  # maintenance that did not know of it has ended
            there = _is_there(lake, plan)
        if not there or lake.places() != places or generations(lake, every) != built:  # or one has ended
            plan.forget(lake)
            return planned(project, lake, tables, since, verify, fresh)
        return plan
    if under_way.savepoint:
        raise LakeError(
            f"the restore of savepoint {under_way.savepoint} is under way, or was killed",
            code="RESTORE_UNDER_WAY",
            hint="run it again, or headwater rebuild --abort removes what it made",
        )
    before = [name for name in project.names() if name in under_way.tables]
    if before != names or under_way.digest != project.digest:
        what = "with other definitions" if before == names else f"of {', '.join(before)}"
        raise LakeError(
            f"a rebuild {what} is under way",
            code="REBUILD_UNDER_WAY",
            hint="end that one first (headwater rebuild --abort removes what it built)",
        )
    if under_way.since != since or under_way.fresh_lookups != fresh:
        anew = ", with lookups asked anew" if under_way.fresh_lookups else ""
        raise LakeError(
            f"a rebuild of {', '.join(before)} is under way, from {under_way.since or 'the start'} on{anew}",
            code="REBUILD_UNDER_WAY",
            hint="end that one first (headwater rebuild --abort removes what it built)",
        )
    if verify and under_way.cut is None:
        raise LakeError(
            f"a rebuild of {', '.join(before)} is under way that has not stopped where it could be compared",
            code="REBUILD_UNDER_WAY",
            hint="swap it without --verify, or begin again (headwater rebuild --abort removes what it built)",
        )
    return under_way


def _is_there(lake: Lake, plan: Plan) -> bool:
    """Whether what a new rebuild begins with, and what it is compared with, has not been removed."""
    begins = {name: Position.parse(at).holds + 1 for name, at in plan.begin.items()}
    places = lake.places()
    return all(log.first(places[name].path) <= at for name, at in {**begins, **(plan.cut or {})}.items())


def is_swapped(lake: Lake, plan: Plan) -> bool:
    """Whether the tables of a plan are the live ones."""
    places = lake.places()
    return any(name in places and places[name].generation == plan.tables[name] for name in plan.tables)
