"""`headwater accept-gap`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json


def accept_gap(
    table: Annotated[
        str, typer.Argument(autocompletion=completion.tables, help="The table of a topic: bronze.x")
    ],
    why: Annotated[
        str | None, typer.Option("--why", help="Why nobody needs the records; it is kept.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is missing.")] = False,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Let a table go on behind records that Kafka has no more, and note which; status shows it for good."""
    from headwater.operations import gaps
    from headwater.project.load import load_project
    from headwater.storage.names import gaps_name

    loaded = load_project(project, env)
    found = gaps.find(loaded, table) if dry_run else gaps.accept(loaded, table, why)
    if as_json:
        print_json([asdict(gap) for gap in found])
        return
    for gap in found:
        typer.echo(f"{table}: {gap} ({gap.reason})")
    if not dry_run:
        typer.echo(f"accepted, and noted in {gaps_name(table)}; run again to go on")
