"""`headwater query`: SQL over the lake."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from headwater.cli import completion
from headwater.cli.options import Env, Project


def query(
    sql: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completion.queries,
            metavar="SQL|NAME",
            help="A query, or the NAME of queries/NAME.sql; without it, those are listed",
        ),
    ] = None,
    engine: Annotated[Literal["duckdb", "spark"], typer.Option(help="What runs it.")] = "duckdb",
    at: Annotated[
        str | None,
        typer.Option(
            help="As it was: a version of the one table named, or an ISO time (UTC unless it says)."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Of tables with a history (SCD 2) the rows that were valid: a number, or an ISO time."
        ),
    ] = None,
    form: Annotated[
        Literal["table", "json", "csv"], typer.Option("--format", "-f", help="How to print it.")
    ] = "table",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="The value of $NAME in the SQL."),
    ] = None,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Query the lake's tables, by their names: headwater query 'SELECT * FROM gold.x LIMIT 10'."""
    from headwater import query as queries
    from headwater.project.paths import find_project
    from headwater.query import params, result, saved

    root = find_project(project)
    if sql is None:
        known = saved.find(root).values()
        listed = queries.Result(("query", "description"), [(q.name, q.description) for q in known])
        result.write(listed, form, sys.stdout)
        return
    given = params.parse(param or ())
    text = saved.resolve(root, sql)
    with queries.rows(text, project=root, env=env, engine=engine, at=at, as_of=as_of, params=given) as rows:
        result.write(rows, form, sys.stdout)
