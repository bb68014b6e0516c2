"""`headwater sql`: as a person types, and with statements that come by a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import Result
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from raising import raises_code
from test_query import READINGS, append, reading
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cli.shell.prompt import Names
from headwater.cli.shell.statements import complete, split

PATIENCE = 60  # seconds for what a busy machine may take
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a table of two readings, a reference table, and a saved query."""
    root: Path = tmp_path_factory.mktemp("project")
    for folder in ("bronze", "silver", "gold", "queries", "conf/reference"):
        (root / folder).mkdir(parents=True)
    (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
    (root / "conf" / "reference" / "hosts.csv").write_text("host\na\n")
    (root / "conf" / "reference" / "hosts.ddl").write_text("host STRING\n")
    (root / "queries" / "usages.sql").write_text(
        "-- All usages\nSELECT usage FROM silver.readings ORDER BY usage\n"
    )
    append(root, "silver.readings", [reading("a", 1.5, 0), reading("b", 2.5, 1)], READINGS)
    return root


# Statements


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT\n2 ;\n", ["SELECT 1", "SELECT\n2"], "\n"),
        ('SELECT \';\', "a;""b" -- ; no\n;', ['SELECT \';\', "a;""b" -- ; no'], ""),
        ("SELECT /* ; */ $$;$$, $x$ $$; $x$;", ["SELECT /* ; */ $$;$$, $x$ $$; $x$"], ""),
        (r"SELECT e'it\'s; ', 'it''s;';", [r"SELECT e'it\'s; ', 'it''s;'"], ""),
        ("SELECT x LIKE';';", ["SELECT x LIKE';'"], ""),
        ("SELECT 'open; ", [], "SELECT 'open; "),
        ("SELECT /* open; ", [], "SELECT /* open; "),
        (";;", [], ""),
    ],
)
def test_a_statement_ends_at_a_semicolon_of_its_own(text: str, statements: list[str], rest: str) -> None:
    assert split(text) == (statements, rest)


def test_enter_ends_what_is_complete() -> None:
    assert all(map(complete, ["", " ", ".help", "SELECT 1;", "SELECT\n1; "]))
    assert not any(map(complete, ["SELECT 1", "SELECT ';", "SELECT 1; SELECT"]))


# Completion


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("SELECT * FROM silver.r", ["silver.readings"]),
        ("SELECT * FROM read", ["silver.readings", "read"]),
        ("FROM silver.readings SELECT hos", ["host", "reference.hosts"]),
        ("FROM silver.readings AS r WHERE r.u", ["r.usage"]),
        ("FROM silver.readings; FROM reference.", ["reference.hosts"]),
        ("SUMM", ["SUMMARIZE"]),
        (".ru", [".run"]),
        (".run us", ["usages"]),
        ("SELECT nothing_like_it", []),
    ],
)
def test_tab_completes_names(project: Path, text: str, completed: list[str]) -> None:
    document = Document(text)
    found = Names(project, "local").get_completions(document, CompleteEvent(completion_requested=True))
    assert [one.text for one in found] == completed


# A pipe


def piped(project: Path, text: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["sql", "--project", str(project), *options], input=text)


def test_a_pipe_is_run_statement_by_statement(project: Path) -> None:
    done = piped(
        project, "-- how many?\nSELECT count(*) AS n\nFROM silver.readings;\n\n.run usages\nSHOW TABLES"
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.split() == [
        *("n", "─", "2", "1", "row"),
        *("usage", "─────", "1.5", "2.5", "2", "rows"),
        *("name", "───────────────", "silver.readings", "reference.hosts", "2", "rows"),
    ]


def test_a_pipe_ends_at_the_first_error(project: Path) -> None:
    done = piped(project, "SELECT 1 AS a;SELECT * FROM silver.nothing;SELECT 2 AS b;", "--format", "json")
    assert json.loads(done.stdout) == [{"a": 1}] and done.exit_code == 1
    with raises_code("UNKNOWN_TABLE"):
        raise done.exception or AssertionError
    with raises_code("UNKNOWN_QUERY", match=r"see \.help"):
        raise piped(project, ".nothing\n").exception or AssertionError


def test_each_statement_reads_what_the_tables_hold_then(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> Iterator[str]:
        yield "SELECT count(*) AS n FROM silver.readings;\n"
        append(project, "silver.readings", [reading("c", 0.5, 2)], READINGS)
        yield "SELECT count(*) AS n FROM silver.readings;\n"

    from headwater.cli.shell import Shell

    found: list[int] = []
    monkeypatch.setattr(
        "headwater.query.result.write", lambda rows, *_, **__: found.append(next(rows.rows)[0])
    )
    Shell(project, "local", "json").run(lines())
    assert found[1] == found[0] + 1


# A terminal


class Terminal:
    """The shell in a terminal of 80 columns, and what it has shown."""

    def __init__(self, project: Path) -> None:
        self._mine, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "vt100", "PROMPT_TOOLKIT_NO_CPR": "1"}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "sql", "--project", str(project)],
            stdin=its,
            stdout=its,
            stderr=its,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(its)
        self._shown = b""

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def computes(self) -> None:
        """Wait until a statement has taken a second of the processor."""
        process = psutil.Process(self.process.pid)
        before, deadline = process.cpu_times().user, time.monotonic() + PATIENCE
        while process.cpu_times().user < before + 1.0:
            assert time.monotonic() < deadline, self.until("")
            if select.select([self._mine], [], [], 0.05)[0]:
                self._shown += os.read(self._mine, 65536)

    def until(self, *wanted: str) -> str:
        """What is shown up to where all of these have been, in this order; later calls go on from there."""
        deadline = time.monotonic() + PATIENCE
        while True:
            text = _ESCAPES.sub(b"", self._shown).decode(errors="replace").replace("\r", "")
            at = 0
            for each in wanted:
                at = text.find(each, at) + len(each) if each in text[at:] else -1
                if at < 0:
                    break
            else:
                self._shown = b""
                return text
            assert time.monotonic() < deadline, f"{wanted} did not come; shown: {text}"
            if select.select([self._mine], [], [], 0.5)[0]:
                try:
                    self._shown += os.read(self._mine, 65536)
                except OSError:  # the terminal's other end is closed
                    pytest.fail(f"it has ended: {text}")


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    made = Terminal(project)
    yield made
    made.process.kill()
    made.process.wait()


def test_a_person_types(terminal: Terminal, project: Path) -> None:
    terminal.until("headwater>")
    terminal.type("SELECT host, repeat('long ', 40) AS words\r")
    terminal.until("...")
    terminal.type("FROM silver.rea\t")
    terminal.until("dings")  # what is shown of the name is what it lacked
    terminal.type(" WHERE host = 'a';\r")
    shown = terminal.until("long l", "…", "1 row, ", " s; what ends in …", "headwater>")
    assert all(len(line) <= 80 for line in shown.splitlines() if "long l" in line)
    terminal.type("SELECT nothing;\r")
    terminal.until("QUERY_FAILED", "headwater>")
    terminal.type("SELECT 'half\x03")
    terminal.until("headwater>")
    terminal.type("SELECT 40 + 2 AS n;\r")
    terminal.until("42", "1 row, ", "headwater>")
    terminal.type("\x1b[A\r")  # the arrow up: the same again
    terminal.until("42", "1 row, ", "headwater>")
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE) == 0
    assert "SELECT 40 + 2 AS n;" in (project / ".headwater" / "sql_history").read_text()


@pytest.mark.torture
def test_ctrl_c_cancels_a_statement(terminal: Terminal) -> None:
    terminal.until("headwater>")
    for _ in range(5):
        terminal.type("SELECT sum(a.range + b.range) FROM range(10000000) AS a, range(1000000) AS b;\r")
        terminal.until("b;\n")
        terminal.computes()  # for hours: any moment will do
        terminal.type("\x03")
        terminal.until("cancelled", "headwater>")
