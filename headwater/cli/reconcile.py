"""`headwater reconcile`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, reading, when
from headwater.common import listings

if TYPE_CHECKING:
    from headwater.operations.rebuild.build import Progress
    from headwater.operations.rebuild.proofs import Standing
    from headwater.operations.rebuild.reconcile import Reconciled


def reconcile(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=completion.tables, help="Tables [none: list what was proven, and when]"
        ),
    ] = None,
    since_last: Annotated[
        bool,
        typer.Option(
            "--since-last/--full",
            help="Compute only what came since the last proof, as far as that can be; or all.",
        ),
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(metavar="FROM/TO", help="Compare only windows between two times (ISO 8601, UTC)."),
    ] = None,
    n: Annotated[
        int, typer.Option("--n", "-n", min=0, help="Rows to show, of those that only one side has.")
    ] = 5,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Compute tables again from exactly what they have read, and compare every row; 1 if any differ."""
    from headwater.operations.rebuild import proofs
    from headwater.operations.rebuild import reconcile as reconciling
    from headwater.operations.rebuild.window import Window
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    if not tables and (since_last or window):
        raise typer.BadParameter("name a table; with none, what was proven is listed")
    if not tables:
        _list(proofs.standings(loaded), as_json)
        return
    if since_last and window:
        raise typer.BadParameter("--since-last compares all windows, --window some; say one")
    found: list[Reconciled] = []
    bars: list[Progress] = []
    results = reconciling.reconcile(
        loaded,
        tables,
        since_last=since_last,
        window=Window.parse(window) if window else None,
        limit=n,
        progress=lambda *rows: bars[-1](*rows),
    )
    for table in tables:
        with reading(table) as tell:
            bars.append(tell)
            found.append(next(results))
        if not as_json:
            _show(found[-1])
    if as_json:
        print_json([{**asdict(one), "same": one.same} for one in found])
    if not all(one.same for one in found):
        raise typer.Exit(1)


def _list(found: list[Standing], as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in found])
        return
    listing = listings.Listing(
        ["table", "proven", "at version", "newest version", ""], right=[2, 3], whole=[0], prose=[1, 4]
    )
    for one in found:
        numbers = ("" if number is None else f"{number:,}" for number in (one.proven, one.version))
        listing.row(one.table, when(one.at) if one.at else "", *numbers, one.why)
    listings.show([listing], sys.stdout)


def _show(one: Reconciled) -> None:
    from headwater.query.result import Result, write

    what = "all rows" if one.since is None else f"what came after version {one.since}"
    what = f"windows in {one.window}" if one.window else what
    said = "the same" if one.same else "NOT the same"
    typer.echo(
        f"{one.table} version {one.version}: {what} computed again: {said} "
        f"({one.rows:,} rows read in {one.seconds:.1f} s)"
    )
    for note in one.notes:
        typer.echo(f"not told by comparing: {note}")
    if one.same:
        return
    listing = listings.Listing(
        ["table", "rows live", "rows computed", "only live", "only computed"], right=[1, 2, 3, 4], whole=[0]
    )
    for each in one.differences:
        listing.row(each.table, *(f"{count:,}" for count in (each.before, each.after, each.gone, each.new)))
    listings.show([listing], sys.stdout)
    for each in one.differences:
        if each.columns:
            typer.echo(f"\n{each.table}: only one side has the columns {', '.join(each.columns)}")
        for where, rows in (("live", each.only_before), ("computed", each.only_after)):
            if rows:
                typer.echo(f"\n{each.table}: only {where}")
                write(Result(tuple(rows[0]), [tuple(row.values()) for row in rows]), "table", sys.stdout)
