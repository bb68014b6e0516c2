"""`headwater sql`: an interactive shell over the lake."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from headwater.cli.options import Env, Project


def sql(
    form: Annotated[
        Literal["table", "json", "csv"], typer.Option("--format", "-f", help="How to print results.")
    ] = "table",
    project: Project = None,
    env: Env = "local",
) -> None:
    """Query the lake in a shell, with history and completion; or run the statements of a pipe."""
    from headwater.cli.shell import Shell
    from headwater.project import conf
    from headwater.project.paths import find_project

    root = find_project(project)
    conf.load(root, env)
    shell = Shell(root, env, form)
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwater.cli.shell.prompt import Prompt

        shell.interact(Prompt(root, env))
    else:
        shell.run(sys.stdin)
