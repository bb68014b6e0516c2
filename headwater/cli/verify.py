"""`headwater verify`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_broken, print_json
from headwater.common import listings


def verify(
    tables: Annotated[
        list[str] | None, typer.Argument(autocompletion=completion.tables, help="Tables [the whole lake]")
    ] = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Read every file, and compare it with its checksum; 1 if any is not what was written."""
    from headwater.operations import verify as verifying
    from headwater.project import conf
    from headwater.project.paths import find_project
    from headwater.storage.lake import Lake

    found = list(verifying.verify(Lake(conf.load(find_project(project), env).lake), tables or ()))
    damages = [damaged for one in found for damaged in one.damages]
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        titles = ["table", "files", "bytes", "rows", "without checksum", "seconds", "damaged"]
        listing = listings.Listing(titles, right=[1, 2, 3, 4, 5, 6], whole=[0])
        for one in found:
            rows = "" if one.rows is None else f"{one.rows:,}"
            unknown, damaged = (f"{number:,}" if number else "" for number in (one.unknown, len(one.damages)))
            listing.row(
                one.table, f"{one.files:,}", f"{one.bytes:,}", rows, unknown, f"{one.seconds:,.2f}", damaged
            )
        listings.show([listing], sys.stdout)
        print_broken(str(damaged) for damaged in damages)
    if damages:
        raise typer.Exit(1)
