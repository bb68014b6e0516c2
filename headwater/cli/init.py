"""`headwater init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(folder: Annotated[Path, typer.Argument(help="Where: a folder that is empty or missing.")]) -> None:
    """Write a small project that runs: a topic, tables, expectations, a query, a generator, a test."""
    from headwater.project.new import new

    for name in new(folder):
        typer.echo(folder / name)
    typer.echo(f"\nNext:\n  cd {folder}\n  headwater demo    made-up orders, live, from Kafka to gold")
