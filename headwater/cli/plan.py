"""`headwater plan`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project, Select, selected
from headwater.cli.printing import print_json
from headwater.common import listings

_EFFECTS = {
    "new": ("new", "green"),
    "unchanged": ("unchanged", "dim"),
    "resumes": ("resumes", "green"),
    "rebuild": ("needs a rebuild", "yellow"),
    "loses": ("would lose rows", "red"),
    "gone": ("no definition", "yellow"),
    "broken": ("broken", "red"),
}


def plan(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=completion.tables, help="Tables, with all they depend on, as run takes them [all]"
        ),
    ] = None,
    select: Select = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Say what running the project as it stands would do to its tables; ends with 2 if a person is needed."""
    from headwater.planner import changes
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    found = changes.plan(loaded, selected(tables, select))
    needed = [line for line in found if line.verdict.effect in changes.NEEDS_A_PERSON]
    if as_json:
        print_json([asdict(line) for line in found])
    else:
        listing = listings.Listing(
            ["table", "", "why", "rows to read", "bytes", "takes about"],
            right=[3, 4, 5],
            whole=[0],
            prose=[1, 2],
        )
        for line in found:
            said, style = _EFFECTS[line.verdict.effect]
            listing.row(
                line.table,
                Text(said, style=style),
                "\n".join([*line.verdict.why, *(f"warning: {said}" for said in line.warnings)]),
                "" if line.rows is None else f"{line.rows:,}",
                "" if line.bytes is None else f"{line.bytes:,}",
                "" if line.seconds is None else f"{line.seconds:,.0f} s",
            )
        listings.show([listing], sys.stdout)
        rebuilt = [line for line in needed if line.verdict.effect == "rebuild"]
        roots = [line.table for line in rebuilt if not line.verdict.follows]
        if roots:
            typer.echo(f"\nheadwater rebuild {' '.join(roots)}")
    if needed:
        raise typer.Exit(2)
