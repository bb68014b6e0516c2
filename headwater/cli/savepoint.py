"""`headwater savepoint`: keep the tables as they are under a name, and put them back."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, when
from headwater.common import listings

if TYPE_CHECKING:
    from headwater.storage.lake import Lake

app = typer.Typer(no_args_is_help=True, help=__doc__)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The savepoint's name.")]


@app.command("create")
def create(name: Name, project: Project = None, env: Env = "local") -> None:
    """Keep all tables but bronze as they are, while flows go on."""
    from headwater.operations import savepoints
    from headwater.project.load import load_project

    made = savepoints.create(load_project(project, env), name)
    typer.echo(f"{made.name}: {len(made.tables)} tables, {made.rows:,} rows, {made.bytes:,} bytes")


@app.command("ls")
def ls(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """List the savepoints."""
    from headwater.operations import savepoints

    found = savepoints.all_of(_lake(project, env))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    listing = listings.Listing(
        ["savepoint", "made at", "tables", "rows", "bytes"], right=[2, 3, 4], whole=[0], prose=[1]
    )
    for one in found:
        numbers = (f"{number:,}" for number in (len(one.tables), one.rows, one.bytes))
        listing.row(one.name, when(one.created_at), *numbers)
    listings.show([listing], sys.stdout)


@app.command("restore")
def restore(name: Name, project: Project = None, env: Env = "local") -> None:
    """Put the tables of a savepoint in the live ones' place, all at once; bronze stays as it is."""
    from headwater.operations import savepoints
    from headwater.project.load import load_project

    for table, generation in savepoints.restore(load_project(project, env), name).items():
        typer.echo(f"{table} is generation {generation} now")


@app.command("drop")
def drop(name: Name, project: Project = None, env: Env = "local") -> None:
    """Remove a savepoint."""
    from headwater.operations import savepoints

    savepoints.drop(_lake(project, env), name)
    typer.echo(f"removed savepoint {name}")


def _lake(project: Project, env: str) -> Lake:
    """The lake of an environment, without its definitions."""
    from headwater.project import conf
    from headwater.project.paths import find_project
    from headwater.storage.lake import Lake

    return Lake(conf.load(find_project(project), env).lake)
