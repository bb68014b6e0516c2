"""The generators of a project: `generators/NAME.py`, loaded by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

from headwater.connectors.kafka.broker import Topic
from headwater.connectors.produce.records import Faults, Record
from headwater.errors import ProjectError
from headwater.project import modules


class Generator(Protocol):
    """What `generators/NAME.py` offers; `headwater.connectors.produce` says what each name means."""

    topics: Sequence[Topic]

    def records(self, *, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]: ...


def names(project: Path) -> list[str]:
    """The generators that a project has."""
    return sorted(p.stem for p in (project / "generators").glob("*.py") if not p.stem.startswith("_"))


def load_generator(project: Path, name: str) -> Generator:
    """The generator in `<project>/generators/<name>.py`.

    Raises:
        ProjectError: there is none of that name, its file fails, or it lacks a name it must offer.
    """
    folder = project / "generators"
    known = names(project)
    if name not in known:
        raise ProjectError(
            f"{folder}: no generator '{name}'",
            code="UNKNOWN_GENERATOR",
            file=folder,
            hint=f"known: {', '.join(known) or 'none'}",
        )
    path = folder / f"{name}.py"
    module = modules.load(path)
    for offered in ("topics", "records"):
        if not hasattr(module, offered):
            raise ProjectError(
                f"{path}: defines no '{offered}'",
                code="GENERATOR_INCOMPLETE",
                file=path,
                hint="a generator offers `topics` and `records`",
            )
    return cast(Generator, module)
