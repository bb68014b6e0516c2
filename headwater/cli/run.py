"""`headwater run`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headwater.cli.options import Env, Project, Select, selected


def run(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables to run, with all they depend on [all]")
    ] = None,
    select: Select = None,
    once: Annotated[bool, typer.Option("--once", help="Drain what is there, then end")] = False,
    close: Annotated[
        bool, typer.Option("--close", help="With --once: the input has ended, so open windows are over")
    ] = False,
    trigger: Annotated[
        str | None, typer.Option(help="How often Kafka is read, e.g. '500 milliseconds' or 500ms")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Where a new source begins: earliest, latest, a time or group:NAME"),
    ] = "earliest",
    json: Annotated[bool, typer.Option("--json", help="One JSON line per batch")] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Run the flows: Kafka to bronze, and each commit on to the tables below."""
    from headwater.common import database, interrupts
    from headwater.common.progress import Board
    from headwater.project.load import load_project
    from headwater.run.supervisor import Options, Run

    if close and not once:
        raise typer.BadParameter("--close needs --once: a run that goes on has no end of its input")
    loaded = load_project(project, env)
    board = Board(sys.stdout if json else None)
    running = Run(loaded, Options(selected(tables, select), once, close, start, trigger), board)
    code = running(lambda: interrupts.ask(running.stop))
    if not json:
        for name, flow in board.flows.items():
            typer.echo(f"{name}: {flow.rows_in} rows in, {flow.rows_out} out, {flow.quarantined} quarantined")
    database.clear()
    sys.stdout.flush()
    os._exit(code)
