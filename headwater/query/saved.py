"""Saved queries: `queries/NAME.sql` of a project, each described by its first comment line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import QueryError


@dataclass(frozen=True)
class Saved:
    """A saved query: its name, its description, its SQL."""

    name: str
    description: str
    sql: str


def find(root: Path) -> dict[str, Saved]:
    """The saved queries of the project at `root`, by name."""
    return {path.stem: _read(path) for path in sorted((root / "queries").glob("*.sql"))}


def resolve(root: Path, text: str) -> str:
    """The SQL of the saved query that `text` names, or `text` itself; a single word is a name.

    Raises:
        QueryError: there is no such saved query.
    """
    word = text.strip()
    if len(word.split()) != 1:
        return text
    known = find(root)
    if word in known:
        return known[word].sql
    if "." in word:
        raise QueryError(
            f"'{word}' is no saved query",
            code="UNKNOWN_QUERY",
            hint=f"for a table: headwater query 'SELECT * FROM {word} LIMIT 10'",
        )
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    raise QueryError(
        f"{root / 'queries' / word}.sql: no such saved query",
        code="UNKNOWN_QUERY",
        file=root / "queries" / f"{word}.sql",
        hint=hint,
    )


def _read(path: Path) -> Saved:
    sql = path.read_text(encoding="utf-8")
    first = next((line for line in sql.splitlines() if line.startswith("--")), "")
    return Saved(path.stem, first.removeprefix("--").strip(), sql)
