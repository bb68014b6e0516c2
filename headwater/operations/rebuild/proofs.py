"""When a table was last proven to be what its definition makes of what it read: a file beside its flow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from headwater.common import times
from headwater.errors import DamageError
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.reference import CLOCK
from headwater.storage import json_file, log
from headwater.storage.lake import Lake


@dataclass(frozen=True)
class Proof:
    """One table, proven.

    Attributes:
        generation, version: of it: all rows of this version were the same.
        rows: how many these were.
        at: when (UTC, ISO 8601).
        fingerprint: the definition's.
    """

    generation: int
    version: int
    rows: int
    at: str
    fingerprint: str


@dataclass(frozen=True)
class Standing:
    """How far a table is proven.

    Attributes:
        table: its name; or that of an alert.
        proven: the version; None: none of the live generation.
        version: the newest one; None where nothing is written.
        at: when it was proven (UTC).
        why: what can't be proven of it.
    """

    table: str
    proven: int | None = None
    version: int | None = None
    at: datetime | None = None
    why: str = ""


def read(folder: Path) -> Proof | None:
    """The last proof of a flow's table; None where there is none."""
    try:
        return Proof(**json_file.read(folder / "proven.json", hint=""))
    except (FileNotFoundError, DamageError):  # the next one proves it anew
        return None


def write(folder: Path, generation: int, version: int, rows: int, fingerprint: str) -> None:
    """Keep that a version is proven, by now."""
    proof = Proof(generation, version, rows, times.now().isoformat(timespec="seconds"), fingerprint)
    json_file.write(folder / "proven.json", asdict(proof))


def standings(project: Project) -> list[Standing]:
    """Every table that is derived, in the order of the graph, then the alerts."""
    lake = Lake(project.conf.lake)
    found = []
    for name in (name for name in project.names() if name in project.tables):
        why, place = unprovable(project.tables[name]), lake.places().get(name)
        if place is None:
            found.append(Standing(name, why=why))
            continue
        proof, head = read(lake.flow_folder(name)), log.head(place.path)
        at = datetime.fromisoformat(proof.at) if proof else None
        found.append(Standing(name, proof.version if proof else None, head, at, why))
    alerts = [Standing(name, why="is sent in real time, and kept nowhere") for name in project.alerts]
    return [*found, *alerts]


def unprovable(table: Table) -> str:
    """What of a table can't be computed again; "" where all can."""
    if CLOCK in table.sources and not table.view:
        return f"depends on when its rows were processed ({CLOCK}), which can't be repeated"
    return ""
