"""What a savepoint says of itself, and where it lies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.errors import ProjectError
from headwater.storage import json_file
from headwater.storage.lake import Lake

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
FILE = "savepoint.json"


@dataclass(frozen=True)
class Held:
    """A table in a savepoint: its generation and version then, its rows (None: not recorded) and bytes."""

    generation: int
    version: int
    rows: int | None
    bytes: int


@dataclass(frozen=True)
class Bronze:
    """How far a bronze table was: its life, its version, and {topic → {partition → Kafka's offset}}."""

    id: str
    generation: int
    version: int
    offsets: dict[str, Any]


@dataclass(frozen=True)
class Savepoint:
    """What is known of a savepoint.

    Attributes:
        name: its name.
        created_at: when it was made (UTC).
        tables: what it holds.
        bronze: how far the bronze tables were, which it does not hold.
        sinks: {sink → what it was sent last, as `headwater.flows.marks` keeps it}; a restore does not touch
            them.
    """

    name: str
    created_at: datetime
    tables: dict[str, Held]
    bronze: dict[str, Bronze]
    sinks: dict[str, dict[str, Any]]

    @property
    def rows(self) -> int:
        """The rows of all tables, where they are recorded."""
        return sum(held.rows or 0 for held in self.tables.values())

    @property
    def bytes(self) -> int:
        """The size of all tables' files."""
        return sum(held.bytes for held in self.tables.values())


def all_of(lake: Lake) -> list[Savepoint]:
    """The savepoints of a lake, the oldest first."""
    found = [read(path) for path in (lake.root / "_savepoints").glob(f"[!.]*/{FILE}")]
    return sorted(found, key=lambda each: each.created_at)


def read(file: Path) -> Savepoint:
    """The savepoint that a file speaks of."""
    kept = json_file.read(file, hint=f"put it back, or remove {file.parent}: that savepoint is lost")
    return Savepoint(
        name=kept["name"],
        created_at=datetime.fromisoformat(kept["created_at"]),
        tables={name: Held(**held) for name, held in kept["tables"].items()},
        bronze={name: Bronze(**read) for name, read in kept["bronze"].items()},
        sinks=kept["sinks"],
    )


def folder_of(lake: Lake, name: str) -> Path:
    """Where a savepoint lies.

    Raises:
        ProjectError: nothing can be named so.
    """
    if not _NAME.fullmatch(name):
        raise ProjectError(
            f"a savepoint can't be called {name!r}",
            code="SAVEPOINT_NAME_INVALID",
            hint="use letters, digits, '-', '_' and '.', a letter or digit first, 64 at most",
        )
    return lake.root / "_savepoints" / name


def unknown(lake: Lake, name: str) -> ProjectError:
    """That there is no such savepoint, and which there are."""
    known = ", ".join(each.name for each in all_of(lake)) or "none"
    return ProjectError(f"there is no savepoint {name}", code="UNKNOWN_SAVEPOINT", hint=f"known: {known}")
