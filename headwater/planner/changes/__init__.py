"""`headwater plan`: what running the project as it stands would do to the tables that are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import CommitError, LakeError, ProjectError
from headwater.planner import outlines
from headwater.planner.changes import facts as definitions
from headwater.planner.changes.facts import Facts
from headwater.planner.changes.verdict import Effect, Verdict, judge
from headwater.planner.outlines import Outline
from headwater.project.definitions import StoreSink, Table
from headwater.project.load import Project
from headwater.storage import delta, log, summary
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside, is_engines, state_name

if TYPE_CHECKING:
    from headwater.planner.analysis import Analysed

__all__ = ["Planned", "accept", "follow", "plan", "shortened", "verdict"]

_GONE = "nothing writes it any more; its rows stay until headwater drop removes it"
RECENT = 200  # commits by which a table's speed is judged
NEEDS_A_PERSON: tuple[Effect, ...] = ("rebuild", "loses", "broken")


@dataclass(frozen=True)
class Planned:
    """One table.

    Attributes:
        table: its name.
        verdict: what would become of it.
        rows, bytes: what a rebuild of it would read; None where none is needed, or nothing is known.
        seconds: how long that takes, by its fastest batch of late; None where none was large enough.
        warnings: what its definition may do, and should not.
    """

    table: str
    verdict: Verdict
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


def plan(project: Project, tables: Sequence[str] = ()) -> list[Planned]:
    """What would become of tables. Changes nothing.

    Args:
        project: the definitions.
        tables: those that are asked about, with all they depend on; none: every table of the project, and
            those of the lake that have no definition any more.

    Raises:
        ProjectError: a table is unknown.
    """
    lake = Lake(project.conf.lake)
    wanted = project.above(list(tables))
    found = outlines.outlines(project)
    verdicts = {name: _judged(project, lake, name, found[name]) for name in project.names()}
    broken = {name for name, found in verdicts.items() if found.effect == "broken"}
    for name, table in project.tables.items():
        above = [source for source in table.sources if source in verdicts]
        rebuilt = [source for source in above if verdicts[source].effect == "rebuild"]
        if rebuilt and verdicts[name].effect in ("unchanged", "resumes"):
            verdicts[name] = Verdict("rebuild", (f"it reads {', '.join(rebuilt)}",), follows=True)
    for name in [name for name, found in verdicts.items() if found.effect == "rebuild"]:
        lost = tuple(shortened(lake, [s for s in project.tables[name].sources if s not in broken]).values())
        if lost:
            verdicts[name] = replace(verdicts[name], effect="loses", why=(*verdicts[name].why, *lost))
    lines = [
        replace(
            _line(project, lake, name, verdicts[name], broken),
            warnings=(*found[name].warnings, *_of_sinks(project, lake, name, verdicts[name], found[name])),
        )
        for name in verdicts
        if name in wanted
    ]
    if tables:
        return lines
    known = {name for table in project.names() for name in (table, *beside(table))}
    for name in sorted(lake.places().keys() - known):
        if not is_engines(name):
            lines.append(Planned(name, Verdict("gone", (_GONE,))))
    return lines


def shortened(lake: Lake, tables: Sequence[str]) -> dict[str, str]:
    """{table → what rows it has no more, in words}, of those that do not keep all (see `maintain.expire`)."""
    places = lake.places()
    found = {name: log.expired(places[name].path) for name in tables if name in places}
    return {
        name: f"{name} has no rows from before {before:%Y-%m-%dT%H:%M:%SZ} (its retention)"
        for name, before in found.items()
        if before is not None
    }


def _judged(project: Project, lake: Lake, name: str, outline: Outline) -> Verdict:
    """What would become of one table, those above it aside; it may be broken."""
    try:
        if name in lake.places():
            delta.opened(lake.places()[name].path)
        return verdict(project, lake, name, outline)
    except CommitError as e:
        return Verdict("broken", (str(e),))


def verdict(project: Project, lake: Lake, name: str, outline: Outline) -> Verdict:
    """What running would do to one table, those above it aside."""
    place = lake.places().get(name)
    if place is None or not log.exists(place.path):
        return Verdict("new")
    before = definitions.read(lake.flow_folder(name))
    if before is None:  # nothing has run with it yet
        return Verdict("new") if log.head(place.path) == 0 else Verdict("unchanged")
    now = definitions.facts(project, name, outline)
    if "flows" in now and "flows" not in before:  # which versions before this one did not keep
        read = {flow: each["consumed"] for flow, each in log.flows(place.path).items() if each["consumed"]}
        before = {**before, "flows": definitions.flows_of(read) if read else now["flows"]}
    found = judge(before, now)
    if found.effect in ("unchanged", "resumes") and not _keeps_the_same(lake, name, outline):
        why = f"{state_name(name)}, which holds what it keeps of each key, would have other columns"
        return Verdict("rebuild", (why,))
    return found


def _keeps_the_same(lake: Lake, name: str, outline: Outline) -> bool:
    """Whether the columns of what the table keeps between batches are those that it would have now."""
    place = lake.places().get(state_name(name))
    if outline.state is None or place is None or not log.exists(place.path):
        return True
    have = pa.schema(delta.opened(place.path).schema().to_arrow())
    before, now = ({field.name: str(field.type) for field in schema} for schema in (have, outline.state))
    return before == now


def accept(project: Project, lake: Lake, name: str, analysed: Analysed) -> None:
    """Let a flow run with the definition, which is kept beside its table.

    Raises:
        ProjectError: its table can't go on with it.
    """
    found = verdict(project, lake, name, analysed.outline)
    if found.effect in NEEDS_A_PERSON:
        where = project.definition(name).where
        what = f"headwater rebuild {name}" if found.effect == "rebuild" else "headwater plan says more"
        raise ProjectError(
            f"{where} can't go on as it was changed: {'; '.join(found.why)}",
            code="DEFINITION_CHANGED",
            where=where,
            hint=f"undo the change, or run: {what}",
        )
    folder, now = lake.flow_folder(name), definitions.facts(project, name, analysed.outline)
    if definitions.read(folder) != now:
        definitions.write(folder, now, definitions.made_of(project, name), project.digest)


def follow(project: Project, lake: Lake, name: str) -> None:
    """Let a flow at work go on in a generation of its table that was made beside it.

    Raises:
        LakeError: it was made by other definitions than those that this process has loaded.
    """
    built_by = definitions.built_by(lake.flow_folder(name))
    if built_by not in ("", project.digest):
        where = project.definition(name).where
        raise LakeError(
            f"{where} was rebuilt by other definitions or suites than process {os.getpid()} was started with",
            code="DEFINITIONS_OUTDATED",
            where=where,
            hint="start that one again",
        )


def _line(project: Project, lake: Lake, name: str, found: Verdict, broken: AbstractSet[str]) -> Planned:
    line = Planned(name, found)
    table = project.tables.get(name)
    if found.effect != "rebuild" or table is None or broken & {*table.sources}:
        return line
    states = [summary.of(place) for source in table.sources if (place := lake.places().get(source))]
    rows = sum(state.rows or 0 for state in states)
    speed = _speed(lake.places()[name], table)
    return replace(
        line, rows=rows, bytes=sum(state.bytes for state in states), seconds=rows / speed if speed else None
    )


def _of_sinks(project: Project, lake: Lake, name: str, found: Verdict, outline: Outline) -> tuple[str, ...]:
    """What a changed table asks of its sinks' targets before they go on."""
    sinks = [sink for sink in project.sinks.values() if sink.table == name]
    if not sinks or found.effect not in ("resumes", "rebuild"):
        return ()
    before = definitions.read(lake.flow_folder(name)) or {}
    now, warnings = definitions.facts(project, name, outline), list[str]()
    for sink in sinks:
        if before.get("keys") != now.get("keys"):
            warnings.append(f"{sink.target} has rows by its former keys: its sink stops until it is emptied")
        elif isinstance(sink, StoreSink) and (asked := _asked_for(before, now)):
            warnings.append(f"{sink.target} needs the columns {asked}, or its sink stops")
    return tuple(warnings)


def _asked_for(before: Facts, now: Facts) -> str:
    """The columns that a table has now, and had not, or of another type."""
    had = definitions.columns_of(before.get("columns", ""))
    has = definitions.columns_of(now.get("columns", ""))
    return ", ".join(f"{name} {kind}" for name, kind in has.items() if had.get(name) != kind)


def _speed(place: Place, table: Table) -> float | None:
    """Rows per second that the table's flow has read, in its fastest batch of late."""
    head, best = log.head(place.path), 0.0
    for commit in log.commits(place.path, after=max(log.first(place.path), head - RECENT), upto=head):
        mine = commit.flows.get(table.name, {})
        seconds = mine.get("seconds", 0.0)
        if mine.get("rows", 0) >= 1000 and seconds:
            best = max(best, mine["rows"] / seconds)
    return best or None
