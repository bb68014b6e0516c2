"""`headwater run`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from json import dumps
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import Env, Project, Select, selected


def run(
    tables: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.tables, help="Tables to run, with all they depend on [all]"),
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
    from headwater.common import database, interrupts, listings
    from headwater.common.progress import Board
    from headwater.common.spool import Spool
    from headwater.project import conf as configuration
    from headwater.project.paths import find_project
    from headwater.run import picture
    from headwater.run.prepare import prepare
    from headwater.run.screen import Screen
    from headwater.runtime import jvm

    if close and not once:
        raise typer.BadParameter("--close needs --once: a run that goes on has no end of its input")
    prepare()
    with (
        Spool(lambda: sys.stdout, lambda lost: dumps({"event": "left out", "lines": lost})) as lines,
        Spool(lambda: sys.stderr, "headwater: {} lines that nobody read were left out".format) as notices,
    ):
        board = Board(lines if json else None, notices)
        with Screen(board, None if json else sys.stdout) as screen:
            board.stage = "loading the project"
            jvm.begin(configuration.load(find_project(project), env).memory)
            from headwater.project.load import load_project  # which takes as long
            from headwater.run.supervisor import Options, Run

            options = Options(selected(tables, select), once, close, start, trigger)
            running = Run(load_project(project, env), options, board)
            screen.watch(running.statuses)
            code = running(lambda: interrupts.ask(running.stop))
    with suppress(OSError):  # nobody reads it any more
        for line in () if json else picture.summary(board.flows, listings.width(sys.stdout)):
            print(line)
        sys.stdout.flush()
    database.clear()
    os._exit(code)
