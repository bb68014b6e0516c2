"""Putting a savepoint's tables in the live ones' place.

1. **Plan**: each of them gets a next generation; the plan and the leases are those of a rebuild, so no two
   are at work.
2. **Make** these of the savepoint, by links; their newest commits speak of each other's next generations.
3. **Swap** all in one commit of the catalog. A running `headwater run` goes on there.

Killed before the swap, nothing has changed, and the next restore removes what was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.errors import LakeError
from headwater.operations import rebuild
from headwater.operations.rebuild.shadow import Plan, Shadow, generations
from headwater.operations.savepoints import cut as cuts
from headwater.operations.savepoints.cut import tables
from headwater.operations.savepoints.kept import FILE, Savepoint, folder_of, read, unknown
from headwater.planner.changes import facts
from headwater.project.load import Project
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.lake import Lake, Place
from headwater.storage.ranges import Position


def restore(project: Project, name: str) -> dict[str, int]:
    """Put the tables of a savepoint in the live ones' place; {table → its generation now}.

    Tables of the project that were made after the savepoint begin anew, empty. A running `headwater run` goes
    on in the restored ones, with the rows of bronze that came after the savepoint.

    Raises:
        ProjectError: there is no such savepoint.
        LakeError: bronze does not go with it, or a rebuild is under way.
        LeaseError: another process is restoring one.
    """
    lake = Lake(project.conf.lake)
    folder = folder_of(lake, name)
    if not folder.exists():
        raise unknown(lake, name)
    saved = Lake(folder)
    goes_on(lake, read(folder / FILE), saved)
    live, kept = lake.places(), saved.places()
    younger = [t for t in project.tables if t in live and t not in kept and log.exists(live[t].path)]
    plan = _planned(project, lake, name, [*kept, *younger])
    shadow = Shadow(lake, plan)
    with rebuild.held(shadow, [each for each in project.tables if each in plan.tables]):
        failpoints.reach("planned", "restore")
        plan.check(lake)
        places = {**_restored(saved, shadow, plan), **_begun_anew(lake, shadow, plan, younger)}
        failpoints.reach("made", "restore")
        lake.swap(places, without=cuts.derived(project))
        failpoints.reach("swapped", "restore")
        plan.forget(lake)
    return plan.tables


def _restored(saved: Lake, shadow: Shadow, plan: Plan) -> dict[str, Place]:
    """The tables of a savepoint, made in their next generations."""
    live, made = Lake(shadow.root).places(), {}
    for name, place in saved.places().items():
        generation = plan.tables[name]
        path = shadow.at(name, generation)
        last = log.read(place.path, log.head(place.path))
        flows = {flow: _moved(identity, saved, plan) for flow, identity in last.flows.items()}
        tables.take(place.path, last.version, path, flows=flows)
        note = saved.flow_at(name, place.generation)
        if (kept := facts.read(note)) is not None:  # whichever run is at work may go on with it
            facts.write(shadow.flow_at(name, generation), kept, facts.ever_made_of(note))
        made[name] = Place(name, generation, path, live[name].id if name in live else place.id)
    return made


def _begun_anew(lake: Lake, shadow: Shadow, plan: Plan, names: list[str]) -> dict[str, Place]:
    """Tables without rows in the place of those that the savepoint does not know."""
    made = {}
    for name in names:
        live = lake.place(name)
        made[name] = replace(live, generation=plan.tables[name], path=shadow.at(name, plan.tables[name]))
        tables.empty(live.path, made[name].path)
    return made


def _moved(identity: Mapping[str, Any], saved: Lake, plan: Plan) -> dict[str, Any]:
    """What a commit says of a flow, its positions in tables of the savepoint in their next generations."""
    places, consumed = saved.places(), dict(identity["consumed"])
    for source, position in consumed.items():
        if source in places and position["generation"] == places[source].generation:
            consumed[source] = {**position, "generation": plan.tables[source]}
    return {**identity, "consumed": consumed}


def _planned(project: Project, lake: Lake, name: str, wanted: list[str]) -> Plan:
    """The restore; what a killed one has made is removed first."""
    under_way = Plan.read(lake)
    if under_way is not None and not rebuild.is_swapped(lake, under_way) and not under_way.savepoint:
        of = ", ".join(each for each in project.names() if each in under_way.tables)
        raise LakeError(
            f"a rebuild of {of} is under way",
            code="REBUILD_UNDER_WAY",
            hint="end that one first (headwater rebuild --abort removes what it built)",
        )
    if under_way is not None:
        rebuild.abort(project)
    plan = Plan(generations(lake, wanted), project.digest, savepoint=name)
    try:
        plan.write(lake)
    except FileExistsError:  # another one has begun meanwhile
        return _planned(project, lake, name, wanted)
    return plan


def goes_on(lake: Lake, savepoint: Savepoint, saved: Lake) -> None:
    """Check that the tables of a savepoint can go on from the bronze tables that are there.

    Raises:
        LakeError: a bronze table is another one, or has not what was read of it.
    """
    places = lake.places()
    for name, position in read_of_bronze(savepoint, saved).items():
        then, now = savepoint.bronze[name], places.get(name)
        where = f"savepoint {savepoint.name} has read {name} up to version {then.version}"
        if now is None or not log.exists(now.path):
            raise LakeError(
                f"{where}, which is gone; it can't be restored without it",
                code="RESTORE_NOT_POSSIBLE",
                table=name,
            )
        if (now.id, now.generation) != (then.id, then.generation):
            raise LakeError(
                f"{where}, and that table was started anew since ({now.path}), so it can't go on from it",
                code="RESTORE_NOT_POSSIBLE",
                table=name,
                hint="build what is below it anew: headwater rebuild",
            )
        head = log.head(now.path)
        if head < then.version:
            raise LakeError(
                f"{where}; {now.path} is at version {head}",
                code="RESTORE_NOT_POSSIBLE",
                table=name,
                hint="restore that table's files first",
            )
        following = position.version + 1 if position.snapshot is None else position.snapshot
        if following <= head and not (now.path / "_delta_log" / f"{following:020d}.json").exists():
            raise LakeError(
                f"{where} and would go on from {following}, which its log has no more",
                code="RESTORE_NOT_POSSIBLE",
                table=name,
                hint="build what is below it anew: headwater rebuild",
            )


def read_of_bronze(savepoint: Savepoint, saved: Lake) -> dict[str, Position]:
    """{bronze table → the position of a table of the savepoint in it that holds most of its past}."""
    found: dict[str, Position] = {}
    for place in saved.places().values():
        for identity in log.flows(place.path).values():
            for source in identity["consumed"].keys() & savepoint.bronze.keys():
                position = Position.parse(identity["consumed"][source])
                known = found.get(source, position)  # within a snapshot its own commit is read, too
                found[source] = min(position, known, key=lambda at: (at.holds, at.snapshot is None))
    return found
