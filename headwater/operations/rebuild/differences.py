"""What was built, compared with the live tables at the versions of a cut; and what can't be told that way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwater.common.diff import NOTHING
from headwater.operations.rebuild import proofs
from headwater.operations.rebuild.compare import Difference, compare, sides
from headwater.operations.rebuild.cut import Cut
from headwater.planner.analysis import Analysed
from headwater.planner.changes import shortened, verdict
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.storage.lake import Lake
from headwater.storage.names import quarantine_name


def differences(
    project: Project,
    live: Lake,
    built: Lake,
    names: list[str],
    cut: Cut,
    *,
    limit: int = 0,
    after: int = 0,
    where: str = "",
) -> list[Difference]:
    """The tables, and what their flows write beside them, each compared.

    A table that is not live yet counts as empty.

    Args:
        project: the definitions.
        live: the lake.
        built: the lake in which the tables were built as far as the cut.
        names: the tables.
        cut: the versions to compare at.
        limit: how many rows to show, of each side of each table.
        after: only what live versions after this one added is compared.
        where: which rows of the tables themselves are compared, in SQL; "": all.
    """
    found = []
    for name in names:
        here = cut.versions.get(name)
        there = cut.built_at(name) if here is not None else None
        ours = dict(sides(live, name, here, after))
        theirs = dict(sides(built, name, there))
        for each, side in ours.items():
            if each == name and where:
                side, theirs[each] = (replace(rows, which=f"WHERE {where}") for rows in (side, theirs[each]))
            if each == name or (side, theirs[each]) != (NOTHING, NOTHING):
                found.append(compare(each, side, theirs[each], limit))
    return found


def unprovable(
    project: Project, live: Lake, names: list[str], tables: Mapping[str, Analysed], cut: Cut
) -> list[str]:
    """Of which tables a comparison does not say all, and why; a line each."""
    gone = shortened(live, [source for name in names for source in project.tables[name].sources])
    found = [f"{short}: what was made of them can't be made again" for short in gone.values()]
    held = shortened(live, [quarantine_name(name) for name in names])
    found += [f"{short}: of those only what is there is compared" for short in held.values()]
    found += [f"{name}: {note}" for name in names for note in cut.notes.get(name, ())]
    for name in names:
        table = project.tables[name]
        if name not in cut.versions:
            found.append(f"{name} is not live yet: there is nothing to compare it with")
            continue
        if cut.versions[name] == 0:
            found.append(f"{name} has read nothing yet that could be compared")
        changed = verdict(project, live, name, tables[name].outline)
        if changed.effect != "unchanged":
            found += [f"{name} was made by another definition: {why}" for why in changed.why]
        gate = tables[name].gate
        if gate is not None and gate.keyed:
            found.append(
                f"{name}: of rows with equal keys in different partitions of Kafka the first that was read "
                "has passed its rules, which may be another one now"
            )
        read = [s for s in table.sources if s in project.references or s in table.snapshots]
        if why := proofs.unprovable(table):
            found.append(f"{name} {why}")
        others = [source for source in read if source != CLOCK]
        if others and tables[name].kind != "view":
            listed = ", ".join(others)
            found.append(f"{name} reads {listed} as of now: rows that met another state of it may differ")
    return found
