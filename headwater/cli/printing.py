"""What several commands print alike: JSON, times, and how far they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print a value as JSON; times in ISO 8601, UTC."""
    from headwater.common.values import plain

    json.dump(plain(value), sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def print_broken(errors: Iterable[str]) -> None:
    """Say below a listing what is wrong with its broken tables; "" is one that is not."""
    for error in filter(None, errors):
        typer.secho(f"\n{error}", fg="red")


def when(at: datetime) -> str:
    """A time in UTC, to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error: rows read, rate, time left. It is told (read, to read)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None, rate=0.0)

        def tell(read: int, all_of_it: int) -> None:
            elapsed = bar.tasks[0].elapsed or 1.0
            bar.update(task, completed=read, total=all_of_it, rate=read / elapsed)

        yield tell
