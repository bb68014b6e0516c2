"""`headwater copy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.options import Env, Project


def copy(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is not there yet.")],
    full: Annotated[
        bool, typer.Option("--full", help="Copy all files, as a backup does; else they are linked.")
    ] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Copy the lake to a folder, while flows go on: to try a change there, or as a backup."""
    from headwater.operations.savepoints import copies
    from headwater.project.load import load_project

    copied = copies.copy(load_project(project, env), target, full=full)
    typer.echo(f"{len(copied)} tables are in {target.resolve()}; to use them: lake: {target.resolve()}")
    for name, version in copied.items():
        typer.echo(f"{name} as of version {version}")
