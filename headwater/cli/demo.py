"""`headwater demo`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headwater.cli.options import Env, Project


def demo(
    system: Annotated[
        str | None, typer.Option(help="The generator that produces: generators/SYSTEM.py [iot, or the first]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to watch")] = 60.0,
    rate: Annotated[int, typer.Option(help="Records per second")] = 1000,
    json: Annotated[bool, typer.Option("--json", help="JSON lines, for machines")] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Start a broker, a producer and the flows of one system; watch them; then query gold."""
    from headwater.common import database, interrupts
    from headwater.run.demo import Show
    from headwater.run.demo import demo as show_demo
    from headwater.run.prepare import prepare

    prepare()
    with interrupts.ending():
        code = show_demo(project, env, Show(system, seconds, rate, json))
    database.clear()
    sys.stdout.flush()
    os._exit(code)
