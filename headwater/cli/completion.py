"""What Tab completes of a command's arguments: names of the project that `--project` or the folder says.

A completion says nothing of what is wrong with a project: there it knows no names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import typer


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """Tables that flows feed."""
    with _quiet():
        from headwater.project.load import load_project

        return _begun(load_project(_root(context), context.params.get("env") or "local").names(), incomplete)
    return []


def queries(context: typer.Context, incomplete: str) -> list[str]:
    """Saved queries."""
    return _files(context, "queries", ".sql", incomplete)


def generators(context: typer.Context, incomplete: str) -> list[str]:
    """Generators."""
    return _files(context, "generators", ".py", incomplete)


def environments(context: typer.Context, incomplete: str) -> list[str]:
    """Environments."""
    return _files(context, "conf", ".yaml", incomplete)


def _files(context: typer.Context, folder: str, suffix: str, incomplete: str) -> list[str]:
    with _quiet():
        from headwater.project.paths import find_project

        found = sorted((find_project(_root(context)) / folder).glob(f"*{suffix}"))
        return _begun([file.stem for file in found if not file.stem.startswith("_")], incomplete)
    return []


def _root(context: typer.Context) -> Path | None:
    root = context.params.get("project")
    return Path(root) if root else None


def _begun(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


@contextmanager
def _quiet() -> Iterator[None]:
    """A shell that completes is told nothing but names."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        try:
            yield
        except Exception:
            return
