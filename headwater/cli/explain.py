"""`headwater explain`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json
from headwater.common import listings


def explain(
    tables: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.tables, help="Tables [all that are derived]"),
    ] = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Say how tables are kept up to date: what a batch does, and which rows of a view a change touches."""
    from headwater.planner.explained import explain
    from headwater.project.load import load_project
    from headwater.runtime import sessions

    loaded = load_project(project, env)
    found = explain(sessions.start(loaded.conf), loaded, tables or [])
    if as_json:
        print_json([asdict(one) for one in found])
        return
    listing = listings.Listing(["table", "how it is kept up to date"], whole=[0], prose=[1])
    for one in found:
        lines = [one.way + (f": {one.why}" if one.why else "")]
        lines += [f"{table}: {what}" for table, what in one.beside.items()]
        lines += one.joins
        lines += one.snapshots
        lines += [one.lookup] if one.lookup else []
        for touched in one.touched:
            through = f", by {', then '.join(touched.through)}" if touched.through else ""
            lines.append(f"{touched.source} touches rows by {', '.join(touched.columns)}{through}")
        listing.row(one.table, "\n".join(lines))
    listings.show([listing], sys.stdout)
