"""`headwater history`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, when
from headwater.common import listings


def history(
    table: Annotated[str, typer.Argument(autocompletion=completion.tables, help="A table, as ls names it.")],
    most: Annotated[int, typer.Option("--n", "-n", min=1, help="At most so many versions.")] = 20,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """List a table's versions, newest first: when each was made, by what, and what it changed."""
    from headwater.query.inspect import history as histories
    from headwater.query.sources import of_project

    found = histories.history(of_project(project, env).named([table])[0], most)
    if as_json:
        print_json([asdict(one) for one in found.versions])
        return
    titles = [
        "version",
        "committed",
        "what",
        "rows read",
        "keys",
        "added",
        "changed",
        "removed",
        "files",
        "seconds",
    ]
    listing = listings.Listing(titles, right=[0, 3, 4, 5, 6, 7, 8, 9], prose=[1, 2])
    for one in found.versions:
        listing.row(
            str(one.version),
            when(one.at),
            one.what,
            *("" if count is None else f"{count:,}" for count in (one.rows_read, one.keys_touched)),
            "?" if one.rows_added is None else f"{one.rows_added:,}",
            *(f"{count:,}" if count else "" for count in (one.rows_changed, one.rows_removed)),
            f"+{one.files_added} -{one.files_removed}",
            "" if one.seconds is None else f"{one.seconds:,.3f}",
        )
    listings.show([listing], sys.stdout)
    if found.ended:
        typer.echo(f"the log begins at version {found.first}; commits before it have been cleaned away")
