"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import completion

Project = Annotated[
    Path | None, typer.Option("--project", help="Project folder (default: walk up from here)")
]
Env = Annotated[
    str, typer.Option("--env", help="Environment: conf/ENV.yaml", autocompletion=completion.environments)
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", "-s", metavar="TABLE[,TABLE]", help="The same as an option, as others have it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def selected(tables: Sequence[str] | None, select: Sequence[str] | None) -> list[str]:
    """The tables that were named, as arguments and by `--select`, each once."""
    by_option = (name.strip() for names in select or () for name in names.split(","))
    return list(dict.fromkeys([*(tables or ()), *filter(None, by_option)]))
