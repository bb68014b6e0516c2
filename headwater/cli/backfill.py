"""`headwater backfill`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json
from headwater.common import listings
from headwater.project.definitions import Format


def backfill(
    table: Annotated[
        str, typer.Argument(autocompletion=completion.tables, help="The table of a topic: bronze.x")
    ],
    files: Annotated[
        str,
        typer.Option(
            "--from-files",
            metavar="GLOB",
            help="Which files; quote it, as in 'old/*.json.gz'; or a Delta table.",
        ),
    ],
    form: Annotated[
        Format | None, typer.Option("--format", help="What is in them [as their names say]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which files would be taken; open none.")
    ] = False,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Take history that never was in Kafka into the table of its topic: each file once."""
    from headwater.operations import backfill as backfilling
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    if dry_run:
        planned = backfilling.plan(loaded, table, files)
        if as_json:
            print_json([asdict(file) for file in planned])
            return
        listing = listings.Listing(["file", "bytes", ""], right=[1], prose=[2])
        for file in planned:
            listing.row(file.path, f"{file.size:,}", file.state)
        listings.show([listing], sys.stdout)
        return
    done = backfilling.backfill(loaded, table, files, form)
    if as_json:
        print_json(asdict(done))
    else:
        known = f"; {done.known:,} files were there before" if done.known else ""
        typer.echo(
            f"{table}: {done.records:,} records of {done.files:,} files, partition {done.partition} of "
            f"the cluster files{known}"
        )
        for path, why in done.amiss.items():
            typer.echo(f"{path}: {why}", err=True)
    if done.amiss:
        raise typer.Exit(1)
