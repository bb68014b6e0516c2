"""What a person types into the shell: lines with a history, which Tab completes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory

from headwater.cli.shell.statements import complete, split
from headwater.errors import HeadwaterError
from headwater.project.paths import engine_folder, make_private
from headwater.query import saved
from headwater.query.sources import Sources, of_project

_WORD = re.compile(r"[\w.]*\Z")
COMMANDS = (".help", ".queries", ".quit", ".run", ".tables")
HISTORY = "sql_history"  # in the project's .headwater


class Prompt:
    """Asks for the next statements. Enter ends them where they are complete, else the line.

    Args:
        root: the project's folder, which keeps the history.
        env: the environment, whose tables are completed.
    """

    def __init__(self, root: Path, env: str) -> None:
        make_private(root)
        self._names = Names(root, env)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(engine_folder(root) / HISTORY)),
            completer=self._names,
            complete_in_thread=True,
            complete_while_typing=False,
            multiline=Condition(lambda: not complete(get_app().current_buffer.text)),
            prompt_continuation=lambda width, number, wrapped: "... ".rjust(width),
        )

    def __call__(self) -> str:
        self._names.forget()
        return self._session.prompt("headwater> ")


class Names(Completer):
    """Completes keywords, tables, and columns of the tables that the statement names.

    Args:
        root: the project's folder.
        env: the environment.
    """

    def __init__(self, root: Path, env: str) -> None:
        self._root, self._env = root, env
        self._sources: Sources | None = None
        self._keywords: list[str] = []

    def forget(self) -> None:
        """Look for tables and columns again when they are asked for next."""
        self._sources = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """What the word before the cursor may become."""
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        statement = split(document.text_before_cursor)[1] + document.text_after_cursor.split(";")[0]
        for name in self._candidates(statement, word):
            yield Completion(name, start_position=-len(word))

    def _candidates(self, statement: str, word: str) -> Iterable[str]:
        if statement.lstrip().startswith("."):
            begun = statement.lstrip().startswith(".run ")
            return _beginning(saved.find(self._root) if begun else COMMANDS, word)
        start, _, last = word.rpartition(".")
        tables, columns = self._tables(), self._columns(statement)
        named = [name for name in tables if name.rpartition(".")[2].startswith(word.lower())]
        of_alias = [f"{start}.{column}" for column in columns] if start else columns
        return dict.fromkeys(
            [
                *_beginning(of_alias, word),
                *_beginning(tables, word),
                *(named if word and not start else ()),
                *(self._words(word) if last and not start else ()),
            ]
        )

    def _tables(self) -> list[str]:
        try:
            self._sources = self._sources or of_project(self._root, self._env)
            return [*self._sources.tables, *self._sources.references]
        except HeadwaterError:  # the statement will say it
            return []

    def _columns(self, statement: str) -> list[str]:
        """The columns of the tables that a statement names."""
        sources = self._sources
        if sources is None:
            return []
        known = {**sources.tables, **sources.references}
        named = dict.fromkeys(word for word in re.findall(r"\w+\.\w+", statement.lower()) if word in known)
        try:
            return list(dict.fromkeys(column for name in named for column in known[name].columns()))
        except HeadwaterError:
            return []

    def _words(self, word: str) -> Iterator[str]:
        """The keywords that begin so, in the case that is typed."""
        if not self._keywords:
            with duckdb.connect() as connection:
                rows = connection.execute("SELECT upper(keyword_name) FROM duckdb_keywords()").fetchall()
            self._keywords = [*sorted(name for (name,) in rows), "SUMMARIZE"]
        for name in _beginning(self._keywords, word):
            yield name.lower() if word.islower() else name


def _beginning(names: Iterable[str], word: str) -> list[str]:
    return [name for name in names if name.lower().startswith(word.lower())]
