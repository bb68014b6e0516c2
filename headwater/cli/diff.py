"""`headwater diff`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json
from headwater.common import listings

if TYPE_CHECKING:
    from headwater.query.inspect.diff import Row

_STYLES = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(
    table: Annotated[str, typer.Argument(autocompletion=completion.tables, help="A table, as ls names it.")],
    since: Annotated[
        str, typer.Option("--from", metavar="VERSION|TIME", help="The version before, or an ISO time (UTC).")
    ],
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="VERSION|TIME", help="The version after; by default the newest."),
    ] = None,
    most: Annotated[int, typer.Option("--n", "-n", min=0, help="At most so many rows of each kind.")] = 20,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Show what changed in a table between two versions: rows added, removed and, by keys, changed."""
    from headwater.query.inspect import diff as differences
    from headwater.query.sources import of_project

    found = differences.diff(of_project(project, env), table, since, until, most)
    if as_json:
        print_json(asdict(found))
        return
    changed = f", {found.changed:,} changed" if found.keys else ""
    typer.echo(
        f"{found.table}, version {found.before} to {found.after}: {found.added:,} rows added, "
        f"{found.removed:,} removed{changed}"
    )
    if found.columns:
        typer.echo(f"only one of them has the columns {', '.join(found.columns)}; they are left out")
    if found.rows:
        listing = listings.Listing(["", "row", "before", "after"] if found.keys else ["", "row"])
        for row in found.rows:
            sign, style = _STYLES[row.change]
            listing.row(Text(sign, style=style), *_cells(row)[: len(listing.columns) - 1])
        listings.show(["", listing], sys.stdout)


def _cells(row: Row) -> list[Text]:
    from headwater.common.values import plain

    parts = (row.row, row.before, row.after)
    return [Text(json.dumps(plain(part), ensure_ascii=False) if part else "") for part in parts]
