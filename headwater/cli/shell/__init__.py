"""The shell of `headwater sql`: statements as they are typed or piped, each on the tables of then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from headwater import query
from headwater.cli.shell.statements import split
from headwater.common import interrupts
from headwater.errors import QueryError
from headwater.errors.causes import known
from headwater.query import result, saved
from headwater.query.result import Format

HELP = """\
Statements end in ; and may have several lines. DESCRIBE x; SUMMARIZE x; EXPLAIN SELECT …; work, too.
.tables          the tables
.queries         the saved queries
.run NAME        run a saved query
.help            this
.quit            leave, as Ctrl-D does; Ctrl-C cancels a statement, Tab completes names"""


class Shell:
    """Runs statements and commands, and prints what comes of them.

    Args:
        root: the project's folder.
        env: the environment.
        form: how results are printed.
    """

    def __init__(self, root: Path, env: str, form: Format) -> None:
        self._root, self._env, self._form = root, env, form

    def interact(self, read: Callable[[], str]) -> None:
        """Run what a person types, until the end of it; an error is one line.

        Args:
            read: asks for the next statements; it raises EOFError at the end, KeyboardInterrupt for none.
        """
        typer.secho("headwater sql reads the tables of the lake; .help says more, Ctrl-D leaves", dim=True)
        while True:
            try:
                text = read().strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.rstrip(";") in (".quit", ".exit", "quit", "exit"):
                return
            try:
                with interrupts.cancelling():
                    self._do(text, timed=True)
            except KeyboardInterrupt:
                typer.secho("cancelled", fg="yellow", err=True)
            except Exception as e:
                if (said := known(e)) is None:
                    raise
                typer.secho(f"{said} [{said.code}]", fg="red", err=True)

    def run(self, lines: Iterable[str]) -> None:
        """Run the statements and commands of a file as its lines come; the last one needs no semicolon.

        Raises:
            HeadwaterError: of the first one that fails.
        """
        rest = ""
        for line in lines:
            if not rest.strip() and line.startswith("."):
                if line.strip() in (".quit", ".exit"):
                    return
                self._do(line.strip(), timed=False)
                continue
            statements, rest = split(rest + line)
            for statement in statements:
                self._do(statement, timed=False)
        self._do(rest.strip(), timed=False)

    def _do(self, text: str, *, timed: bool) -> None:
        if text.startswith("."):
            self._command(*text.rstrip(";").split(maxsplit=1), timed=timed)
            return
        statements, rest = split(text)
        for statement in [*statements, rest]:
            if _says_something(statement):
                self._query(statement, timed)

    def _command(self, name: str, argument: str = "", *, timed: bool) -> None:
        if name == ".help":
            typer.echo(HELP)
        elif name == ".tables":
            self._query("SHOW TABLES", timed)
        elif name == ".queries":
            found = saved.find(self._root).values()
            listed = query.Result(("query", "description"), [(q.name, q.description) for q in found])
            result.write(listed, self._form, sys.stdout)
        elif name == ".run" and argument:
            self._query(saved.resolve(self._root, argument), timed)
        else:
            raise QueryError(f"'{name}' is no command of the shell", code="UNKNOWN_QUERY", hint="see .help")

    def _query(self, sql: str, timed: bool) -> None:
        begun = time.monotonic()
        with query.rows(sql, project=self._root, env=self._env) as found:
            seconds = time.monotonic() - begun
            result.write(found, self._form, sys.stdout, seconds=seconds if timed else None)
        sys.stdout.flush()


def _says_something(text: str) -> bool:
    """Whether there is more than white space and comments."""
    return any(line.strip() and not line.strip().startswith("--") for line in text.splitlines())
