"""The tables of a project and of its lake, in listings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.errors import CommitError
from headwater.project.definitions import Files, Table
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.storage import summary
from headwater.storage.lake import Lake, Place
from headwater.storage.names import beside, is_engines
from headwater.storage.summary import Summary


@dataclass(frozen=True)
class Listed:
    """One table in a listing.

    Attributes:
        name: `<layer>.<name>`.
        kind: `topic` (from Kafka), `files`, `python` or `sql` (derived), `changes`, `view`, `quarantine`,
            `late`, `state` (open windows), `ledger` (of files), `gaps` (in a topic), `engine`, `reference`,
            or `unknown`, where the definition is gone.
        source: what it reads.
        status: `written`, `not written yet`, `broken`, or `no definition`: the lake has it, the project not.
        state: what it holds; None where nothing is written or it is broken, and for a CSV file.
        error: of a broken table, what is wrong and what to do.
    """

    name: str
    kind: str
    source: str
    status: str
    state: Summary | None
    error: str = ""

    @property
    def layer(self) -> str:
        """The part of the name before the dot."""
        return self.name.split(".", 1)[0]


def tables(project: Project) -> list[Listed]:
    """Every table of the project and of its lake, in the order in which rows flow; reference tables last."""
    places = Lake(project.conf.lake).places()
    lines = []
    for name in project.names():
        lines.append(_line(name, kind(project, name), reads(project, name), places.get(name)))
        for other, what in beside(name).items():
            if other in places:
                lines.append(_line(other, what, name, places[other]))
    known = {line.name for line in lines}
    for name in sorted(places.keys() - known):
        status = "written" if is_engines(name) else "no definition"
        lines.append(_line(name, kind(project, name), "", places[name], status))
    for reference in (found for found in project.references.values() if found.name != CLOCK):
        source = _relative(project, reference.path)
        if reference.path.is_dir():
            place = Place(reference.name, 1, reference.path)
            lines.append(_line(reference.name, "reference", source, place))
        else:
            lines.append(Listed(reference.name, "reference", source, "written", None))
    return lines


def kind(project: Project, name: str) -> str:
    """What the table `name` is, in a word; see `Listed`."""
    if name in project.topics:
        return "topic"
    if name in project.files:
        return "files"
    if name in project.references:
        return "reference"
    table = project.tables.get(name)
    if table is not None:
        parts = table.flows or (table,)
        if table.view:
            return "view"
        if any(each.cdc for each in parts):
            return "changes"
        return "sql" if all(each.sql for each in parts) else "python"
    found = owner(project, name)
    if found is not None:
        return beside(found)[name]
    return {"ops": "engine", "quarantine": "quarantine"}.get(name.split(".", 1)[0], "unknown")


def reads(project: Project, name: str) -> str:
    """What the table `name` reads, in a line."""
    found = project.definition(name)
    if isinstance(found, Table):
        return ", ".join(found.sources)
    return f"files:{found.pattern}" if isinstance(found, Files) else f"kafka:{found.topic}"


def owner(project: Project, name: str) -> str | None:
    """The table whose flow writes the table `name` beside its own; None for other tables."""
    return next((table for table in project.names() if name in beside(table)), None)


def _line(name: str, what: str, source: str, place: Place | None, status: str = "written") -> Listed:
    if place is None:
        return Listed(name, what, source, "not written yet", None)
    try:
        return Listed(name, what, source, status, summary.of(place))
    except CommitError as e:
        return Listed(name, what, source, "broken", None, str(e))


def _relative(project: Project, path: Path) -> str:
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else str(path)
