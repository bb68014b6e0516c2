"""`headwater rebuild`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, reading
from headwater.common import listings

if TYPE_CHECKING:
    from headwater.operations.rebuild import Rebuilt


def rebuild(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=completion.tables, help="Tables; all that is derived from them is rebuilt too."
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            help="What of the history is read: earliest (what is left), what came since a time, or a version "
            "and all after it [all]",
        ),
    ] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the live rows; swap only if they are the same.")
    ] = False,
    swap: Annotated[
        bool, typer.Option("--swap/--no-swap", help="Whether the new tables shall take the old ones' place.")
    ] = True,
    fresh_lookups: Annotated[
        bool,
        typer.Option("--fresh-lookups", help="Ask lookups anew, instead of what their answers were."),
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Remove what a rebuild that was not swapped has built.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove the generations that are not live any more.")
    ] = False,
    as_json: AsJson = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Build tables anew from the history of what they read, and swap them all at once for the live ones."""
    from headwater.operations import rebuild as rebuilding
    from headwater.project.load import load_project

    if tables and (abort or clean):
        raise typer.BadParameter("--abort and --clean are of all tables: name none")
    loaded = load_project(project, env)
    if abort:
        aborted = rebuilding.abort(loaded)
        _say(as_json, {"aborted": aborted}, f"removed what was built of {', '.join(aborted)}")
        return
    if clean:
        removed = rebuilding.clean(loaded)
        _say(as_json, {"removed": removed}, f"removed {removed} generations")
        return
    if since and verify:
        raise typer.BadParameter("--from makes other rows than the live ones: leave --verify away")
    if not tables:
        raise typer.BadParameter("name a table, or say --abort or --clean")
    with reading(", ".join(tables)) as tell:
        done = rebuilding.rebuild(
            loaded,
            tables,
            since=since,
            verify=verify,
            swap=swap,
            fresh_lookups=fresh_lookups,
            progress=tell,
        )
    if as_json:
        print_json(asdict(done))
    else:
        _show(done, tables)
    if verify and any(done.differences) and not done.swapped:
        raise typer.Exit(1)


def _show(done: Rebuilt, tables: list[str]) -> None:
    rate = done.rows / max(done.seconds, 0.001)
    typer.echo(f"{done.rows:,} rows read in {done.seconds:.1f} s ({rate:,.0f} rows/s)")
    if done.differences:
        titles = ["table", "rows before", "rows after", "only before", "only after"]
        listing = listings.Listing(titles, right=[1, 2, 3, 4], whole=[0])
        for one in done.differences:
            listing.row(one.table, *(f"{n:,}" for n in (one.before, one.after, one.gone, one.new)))
        listings.show([listing], sys.stdout)
    for note in done.notes:
        typer.echo(f"not told by comparing: {note}")
    if not done.swapped:
        typer.echo(
            "not swapped: headwater rebuild "
            f"{' '.join(tables)} swaps, headwater rebuild --abort removes what was built"
        )
        return
    typer.echo(f"live flows of these tables rested for {done.held:.1f} s")
    for name, generation in done.tables.items():
        typer.echo(f"{name} is generation {generation} now")


def _say(as_json: bool, what: dict[str, Any], text: str) -> None:
    if as_json:
        print_json(what)
    else:
        typer.echo(text)
