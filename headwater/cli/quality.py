"""`headwater quality run`, `show` and `suggest`: whole tables, judged by Great Expectations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, when
from headwater.common import listings

_COLOURS = {"passed": "green", "failed": "red", "error": "yellow"}

app = typer.Typer(no_args_is_help=True, help="Validate whole tables against their suites in quality/.")


@app.command()
def run(
    table: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.tables, help="A table with a suite [all that have one]"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="As it was: a version of the table, or an ISO time (UTC unless it says)."),
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="Folder of the Data Docs [.headwater/data_docs]")] = None,
    samples: Annotated[
        bool, typer.Option(help="Show a few failing values of each expectation in the Data Docs.")
    ] = False,
    as_json: AsJson = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Validate tables by Great Expectations, keep the results, and build its Data Docs."""
    from headwater.operations.validation import results, validate
    from headwater.project.load import load_project
    from headwater.project.paths import engine_folder

    loaded = load_project(project, env)
    folder = docs or engine_folder(loaded.root) / "data_docs"
    done = validate.run(loaded, table, docs=folder, at=at, samples=samples)
    rows = [row for one in done.validations for row in results.rows(done.id, one)]
    if as_json:
        print_json({"run_id": done.id, "passed": done.passed, "docs": done.docs, "results": rows})
    else:
        listings.show([_listing(rows)], sys.stdout)
        for name in done.skipped:
            typer.echo(f"{name}: holds nothing yet")
        typer.echo(f"Data Docs: {done.docs}")
    raise typer.Exit(0 if done.passed else 1)


@app.command()
def show(
    table: Annotated[
        str | None, typer.Argument(autocompletion=completion.tables, help="A table [all that were validated]")
    ] = None,
    as_json: AsJson = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Show the last validation of each table."""
    from headwater.operations.validation import results
    from headwater.project.load import load_project

    rows = results.last(load_project(project, env), table)
    if as_json:
        print_json({"results": rows})
    else:
        listings.show([_listing(rows, dated=True)], sys.stdout)


@app.command()
def suggest(
    table: Annotated[str, typer.Argument(autocompletion=completion.tables, help="A table that holds rows.")],
    write: Annotated[bool, typer.Option("--write", help="Write quality/TABLE.json; never over one.")] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Suggest a first suite from what a table holds, all of it warnings, for you to edit."""
    from headwater.operations.validation import suggest as suggesting
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    suite = suggesting.suggest(loaded, table)
    if write:
        typer.echo(suggesting.write(loaded, table, suite))
    else:
        sys.stdout.write(suggesting.text(suite))


def _listing(rows: Sequence[dict[str, Any]], *, dated: bool = False) -> Any:
    columns = ["table", "version", "expectation", "action", "status", "found"]
    from headwater.operations.validation import results

    listing = listings.Listing(
        [*columns, "validated at"] if dated else columns, right=[1], whole=[0], prose=[2, 3, 4, 5, 6]
    )
    for row in rows:
        cells = [
            Text(row["table_name"]),
            str(row["version"]),
            Text(row["expectation"]),
            row["action"],
            Text(row["status"], style=_COLOURS[row["status"]]),
            Text(results.found(row)),
        ]
        listing.row(*cells, *([when(row["validated_at"])] if dated else []))
    return listing
