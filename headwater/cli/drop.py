"""`headwater drop`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.options import Env, Project


def drop(
    table: Annotated[str, typer.Argument(help="A table that the project does not define any more.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Remove a table that has no definition any more, and those beside it, with all that they hold."""
    from headwater.operations import drop as dropping
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    found = dropping.find(loaded, table)
    rows = "?" if found.rows is None else f"{found.rows:,}"
    what = f"{', '.join(found.tables)}: {rows} rows, {found.bytes:,} bytes"
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"this removes {what}; say --yes")
        typer.confirm(f"remove {what}?", abort=True, err=True)
    dropping.drop(loaded, found)
    typer.echo(f"removed {what}")
