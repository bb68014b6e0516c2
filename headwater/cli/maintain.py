"""`headwater maintain`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json
from headwater.common import listings


def maintain(
    tables: Annotated[
        list[str] | None, typer.Argument(autocompletion=completion.tables, help="Tables [all]")
    ] = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Put small files together, let go of rows and versions that are older than is kept."""
    from headwater.operations import maintain as maintenance
    from headwater.project.load import load_project

    done = maintenance.maintain(load_project(project, env), tables or ())
    if as_json:
        print_json([asdict(one) for one in done])
        return
    titles = [
        "table",
        "files fewer",
        "rows expired",
        "versions forgotten",
        "files removed",
        "bytes",
        "readable from",
        "held by",
    ]
    listing = listings.Listing(titles, right=[1, 2, 3, 4, 5, 6], whole=[0], prose=[7])
    for one in done:
        numbers = (one.compacted, one.expired, one.commits, one.files, one.bytes, one.first)
        listing.row(one.table, *(f"{number:,}" for number in numbers), one.held)
    listings.show([listing], sys.stdout)
