"""`headwater state`: what tables keep between batches."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_broken, print_json, when
from headwater.common import listings


def state(
    table: Annotated[
        str | None, typer.Argument(autocompletion=completion.tables, help="A table [all that keep something]")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="COLUMN=VALUE", help="Only rows with this value."),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Rows at most.")] = 20,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Show what tables keep between batches: open windows, groups, watermarks, late rows."""
    from headwater.project.load import load_project
    from headwater.query.inspect import state as states
    from headwater.query.params import parse
    from headwater.query.result import write

    if key and table is None:
        raise typer.BadParameter("--key is of the rows of one table: name it")
    loaded = load_project(project, env)
    if table is not None:
        found = states.rows(loaded, table, parse(key or (), "--key"), n)
        write(found, "json" if as_json else "table", sys.stdout)
    kept = [one for one in states.kept(loaded) if table in (None, one.table)]
    if table is None and as_json:
        print_json([asdict(one) for one in kept])
    elif table is None:
        listing = listings.Listing(
            ["table", "kept in", "keys", "bytes", "watermark", "late rows"],
            right=[2, 3, 5],
            whole=[0],
            prose=[4],
        )
        for one in kept:
            watermark = when(one.watermark) if one.watermark else ""
            numbers = ("?" if one.keys is None else f"{one.keys:,}", f"{one.bytes:,}")
            late = "" if one.late is None else f"{one.late:,}"
            listing.row(one.table, one.kept_in, *numbers, watermark, late)
        listings.show([listing], sys.stdout)
        print_broken(one.error for one in kept)
    elif not as_json:
        places = listings.Listing(["partition", "reached", "last row ingested", ""], prose=[1, 2, 3])
        for each in (each for one in kept for each in one.partitions):
            times = [when(at) if at else "" for at in (each.reached, each.seen)]
            places.row(each.name, *times, Text("idle" if each.idle else "", style="yellow"))
        listings.show(["", places] if kept and kept[0].partitions else [], sys.stdout)
