"""Savepoints: what a lake's tables were at a time, kept under a name, to put them back.

    <lake>/_savepoints/<name>/                  a lake: all tables but bronze, their files linked
    <lake>/_savepoints/<name>/savepoint.json    when it was made, what it holds, and how far bronze was

A savepoint is a consistent cut (`savepoints.cut`). A restore makes next generations of tables from it, and
swaps them in one commit; bronze, the history, stays as it is, so the flows take again what came after.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwater.common import times
from headwater.common.values import plain
from headwater.errors import LakeError
from headwater.operations.savepoints import cut as cuts
from headwater.operations.savepoints.cut import Chosen, lakes
from headwater.operations.savepoints.cut.whole import remove, unfinished, whole
from headwater.operations.savepoints.kept import FILE, Bronze, Held, Savepoint, all_of, folder_of, unknown
from headwater.operations.savepoints.restoring import goes_on, restore
from headwater.project.load import Project
from headwater.runtime import failpoints
from headwater.storage import erasure, json_file, past, summary
from headwater.storage.lake import Lake, Place


def create(project: Project, name: str) -> Savepoint:
    """Keep all tables but bronze as they are, while flows go on.

    Raises:
        ProjectError: no such name can be given.
        LakeError: there is such a savepoint, or nothing to keep; an erase is under way; or bronze has lost
            what the savepoint would go on from.
        LeaseError: another process is making it.
        CommitError: a file was removed meanwhile.
    """
    lake = Lake(project.conf.lake)
    folder = folder_of(lake, name)
    if folder.exists():
        raise LakeError(
            f"there is a savepoint {name} already",
            code="SAVEPOINT_EXISTS",
            hint=f"take another name, or run: headwater savepoint drop {name}",
        )
    if not lake.places().keys() & cuts.derived(project):
        raise LakeError(
            f"{lake.root}: there is nothing to keep yet",
            code="LAKE_EMPTY",
            file=lake.root,
            hint="run: headwater run --once",
        )
    with whole(folder) as part:
        erasure.refuse(lake)  # one that begins now finds the folder
        into, wanted = Lake(part), set(cuts.derived(project))
        with past.keeping(lake):
            cut = cuts.choose(project, lake)
            failpoints.reach("chosen", "savepoint")
            lakes.make({each: chosen for each, chosen in cut.items() if each in wanted}, lake, into)
        made = Savepoint(
            name=name,
            created_at=times.now(),
            tables={each: _held(place) for each, place in into.places().items()},
            bronze={each: _bronze(cut[each], each) for each in project.raw if each in cut},
            sinks=_sinks(project, lake),
        )
        json_file.write(part / FILE, plain(asdict(made)), indent=1)
        failpoints.reach("made", "savepoint")
    with past.forgetting(lake):  # who did not know of it has ended: what it would go on from is kept, or gone
        pass
    try:
        goes_on(lake, made, Lake(folder))
    except LakeError:
        remove(folder)
        raise
    return made


def drop(lake: Lake, name: str) -> None:
    """Remove a savepoint, or what a killed process left of one.

    Raises:
        ProjectError: there is neither.
        LeaseError: another process is making or removing it.
    """
    folder = folder_of(lake, name)
    if not folder.exists() and not unfinished(folder).exists():
        raise unknown(lake, name)
    remove(folder)


def _held(place: Place) -> Held:
    state = summary.of(place)
    return Held(state.generation, state.version, state.rows, state.bytes)


def _bronze(chosen: Chosen, name: str) -> Bronze:
    flows = chosen.commit.flows
    offsets = flows[name]["consumed"] if name in flows else {}
    return Bronze(chosen.place.id, chosen.place.generation, chosen.version, offsets)


def _sinks(project: Project, lake: Lake) -> dict[str, dict[str, Any]]:
    kept = {sink: lake.flow_folder(sink) / "position.json" for sink in project.sinks}
    found = {sink: file for sink, file in kept.items() if file.is_file()}
    hint = "put it back from a copy, or remove it: then the whole table is sent again"
    return {sink: json_file.read(file, table=sink, hint=hint) for sink, file in found.items()}


__all__ = ["Bronze", "Held", "Savepoint", "all_of", "create", "drop", "restore"]
