"""`headwater erase`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, reading

if TYPE_CHECKING:
    from headwater.operations.erase import Erased, Erasure, Found
    from headwater.project.load import Project as Loaded


def erase(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A table that decodes records, or a bronze table [none: end an erase that was killed]"
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Which records: SQL on their fields, as in: user_id = 'u-17'"),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--from", help="earliest: what is made anew may have only what bronze still has by its retention."
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Take records out of bronze, and out of all that was made of them, and prove it."""
    from headwater.operations import erase as erasing
    from headwater.project.load import load_project

    if (table is None) != (where is None):
        raise typer.BadParameter("say both, a table and --where")
    if since not in ("", "earliest"):
        raise typer.BadParameter("--from is earliest, or left away")
    loaded = load_project(project, env)
    before = erasing.unfinished(loaded)
    done: list[Erased] = []
    if before is not None:
        typer.echo(f"going on with an erase of {', '.join(before.tables)} that was killed", err=True)
        done.append(_carried_out(loaded, before))
    elif table is None:
        raise typer.BadParameter("no erase was killed; name a table, and say --where")
    if table is not None and where is not None:
        found = erasing.look(loaded, table, where)
        if found.malformed:
            typer.echo(
                f"{found.malformed:,} records can't be decoded: only a condition on `value` can mean any",
                err=True,
            )
        if found.records:
            _ask(loaded, found.records, yes)
            done.append(_carried_out(loaded, found, since))
        elif not done:
            typer.echo(f"no record of {table} is meant", err=True)
    if as_json:
        print_json([asdict(one) for one in done])
        return
    for one in done:
        _show(one)


def _carried_out(project: Loaded, what: Found | Erasure, since: str = "") -> Erased:
    from headwater.operations import erase as erasing

    with reading("making anew") as tell:
        return erasing.erase(project, what, since=since, progress=tell)


def _ask(project: Loaded, records: dict[str, int], yes: bool) -> None:
    from headwater.operations.erase import counted, made_of

    below = ", ".join(made_of(project, list(records)))
    what = f"this erases {counted(records)} for good, and makes {below or 'no table'} anew"
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"{what}; say --yes")
        typer.confirm(f"{what}; go on?", abort=True, err=True)


def _show(done: Erased) -> None:
    typer.echo(f"erased {done.records:,} records of {', '.join(done.bronze)}")
    for name, generation in done.tables.items():
        typer.echo(f"{name} is generation {generation} now")
    for sink in done.sinks:
        typer.echo(f"{sink} was sent what is other now")
    searched = done.searched
    typer.echo(
        f"none of them is in the {searched.files:,} files of the lake that say where their rows came from; "
        f"the other {searched.others:,} have rows made of many records, and were made without them"
    )
    typer.echo("not in the lake, and left to you:")
    for each in done.left:
        typer.echo(f"  {each}")
