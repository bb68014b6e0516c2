"""What the log and the files of a table say of it, without reading its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from headwater.connectors.files.ledger import ledger_name
from headwater.planner.aggregate import PARTIAL
from headwater.planner.event_time import late_name, state_name
from headwater.project.definitions import Files, Table
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.quality.quarantine import quarantine_name, resolved_name
from headwater.storage import log
from headwater.storage.lake import Lake, Place, is_engines


@dataclass(frozen=True)
class State:
    """What a table holds.

    Attributes:
        path: its Delta table.
        generation: which of its lives that is, from 1.
        version: the newest version.
        rows: how many it holds; None where a file's statistics lack the number.
        files: Parquet files of the newest version.
        bytes: their size.
        last_commit: when the newest version was made (UTC).
        flows: {flow → generation, sequence, consumed} as the newest commit has it.
    """

    path: Path
    generation: int
    version: int
    rows: int | None
    files: int
    bytes: int
    last_commit: datetime
    flows: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One table in a listing.

    Attributes:
        name: `<layer>.<name>`.
        kind: `topic` (from Kafka), `files`, `python` or `sql` (derived), `view`, `quarantine`, `late`,
            `state` (open windows), `ledger` (of files), `engine`, `reference`, or `unknown`, where the
            definition is gone.
        source: what it reads.
        status: `written`, `not written yet`, or `no definition`: the lake has it, the project has not.
        state: what it holds; None where nothing is written, and for a CSV file.
    """

    name: str
    kind: str
    source: str
    status: str
    state: State | None

    @property
    def layer(self) -> str:
        """The part of the name before the dot."""
        return self.name.split(".", 1)[0]


def tables(project: Project) -> list[Line]:
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
        lines.append(Line(name, kind(project, name), "", status, of(places[name])))
    for reference in (found for found in project.references.values() if found.name != CLOCK):
        held = of(Place(reference.name, 1, reference.path)) if reference.path.is_dir() else None
        lines.append(Line(reference.name, "reference", _relative(project, reference.path), "written", held))
    return lines


def kind(project: Project, name: str) -> str:
    """What the table `name` is, in a word; see `Line`."""
    if name in project.topics:
        return "topic"
    if name in project.files:
        return "files"
    if name in project.references:
        return "reference"
    table = project.tables.get(name)
    if table is not None:
        return "view" if table.view else "sql" if table.sql else "python"
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


def of(place: Place) -> State:
    """What the table at `place` holds, from its log."""
    table = DeltaTable(place.path)
    commit = log.read(place.path, int(table.version()))
    actions = pa.table(table.get_add_actions(flatten=True))
    recorded = "num_records" in actions.column_names
    counts = cast(list[int | None], actions["num_records"].to_pylist() if recorded else [])
    sizes = cast(list[int], actions["size_bytes"].to_pylist())
    return State(
        path=place.path,
        generation=place.generation,
        version=commit.version,
        rows=None if None in counts or len(counts) != len(sizes) else sum(count or 0 for count in counts),
        files=len(sizes),
        bytes=sum(sizes),
        last_commit=commit.at,
        flows=commit.flows,
    )


def columns(place: Place) -> dict[str, str]:
    """{column → type} of the table at `place` as readers see it; types as Spark writes them."""
    stored = json.loads(DeltaTable(place.path).schema().to_json())
    return type_names(StructType.fromJson(stored))


def type_names(columns: StructType) -> dict[str, str]:
    """{column → type} without the column of partial results; types as Spark writes them."""
    return {field.name: field.dataType.simpleString() for field in columns if field.name != PARTIAL}


def changes_in_place(place: Place) -> bool:
    """Whether rows of the table at `place` change, which the engine keeps a change feed of."""
    settings = DeltaTable(place.path).metadata().configuration
    return settings.get("delta.enableChangeDataFeed") == "true"


def owner(project: Project, name: str) -> str | None:
    """The table whose flow writes the table `name` beside its own; None for other tables."""
    return next((table for table in project.names() if name in beside(table)), None)


def beside(table: str) -> dict[str, str]:
    """{table that a flow may write beside its own → its kind}."""
    return {
        quarantine_name(table): "quarantine",
        resolved_name(table): "quarantine",
        late_name(table): "late",
        state_name(table): "state",
        ledger_name(table): "ledger",
    }


def _line(name: str, what: str, source: str, place: Place | None) -> Line:
    if place is None:
        return Line(name, what, source, "not written yet", None)
    return Line(name, what, source, "written", of(place))


def _relative(project: Project, path: Path) -> str:
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else str(path)
