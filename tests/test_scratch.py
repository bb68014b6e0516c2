"""What DuckDB may take: spilled below the lake, no more than is allowed, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from raising import raises_code

from headwater.common import database, scratch
from headwater.common.database import Limits
from headwater.errors import causes
from headwater.project import conf
from headwater.project.load import load_project

TEXT = "hash(range)::VARCHAR || hash(range + 1)::VARCHAR"
SORT = f"CREATE TEMP TABLE t AS SELECT {TEXT} AS v FROM range(600000) ORDER BY v"  # 25 MB


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = database.limits()
    yield
    database.limit(before)


def test_it_spills_below_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    database.limit(Limits(tmp_path / "lake", "20MB", "1GB", 1))
    with scratch.connection() as connection:
        connection.execute(SORT)
        files = [path for path in (tmp_path / "lake" / database.FOLDER).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) > 10_000_000
        assert connection.execute("SELECT current_setting('threads')").fetchone() == (1,)
    assert not list(elsewhere.iterdir())


def test_it_spills_no_more_than_it_may(tmp_path: Path) -> None:
    database.limit(Limits(tmp_path, "20MB", "2MB", 1))
    with scratch.connection() as connection, pytest.raises(duckdb.Error) as refused:
        connection.execute(SORT)
    said = causes.known(refused.value)
    assert said is not None and said.code == "OUT_OF_MEMORY" and "duckdb.disk" in str(said.hint)


def test_without_a_lake_nothing_is_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database.limit(Limits(None, "20MB"))
    with scratch.connection() as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute(SORT)
    assert not list(tmp_path.iterdir())


HOLDS = """
import sys, pathlib
from headwater.common import database, scratch
database.limit(database.Limits(pathlib.Path(sys.argv[1]), "20MB", "1GB", 1))
with scratch.connection() as connection:
    connection.execute(sys.argv[2])
    print("spilled", flush=True)
    sys.stdin.read()
"""


def test_what_processes_leave_goes(tmp_path: Path) -> None:
    """Of one that ends at its end; of one that was killed when another begins; never of one that lives."""

    def started() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDS, str(tmp_path), SORT]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "spilled\n"
        return process

    def folders() -> set[Path]:
        return set((tmp_path / database.FOLDER).iterdir())

    lives = started()
    mine = folders()
    killed = started()
    assert len(folders()) == 2
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(folders()) == 2
    ends = started()
    assert mine < folders() and len(folders()) == 2
    for process in (ends, lives):
        process.communicate(input="")
    assert not folders()


def test_limits_are_the_environments(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "bronze").mkdir()
    file = tmp_path / "conf" / "local.yaml"
    file.write_text("cores: 3\nduckdb: {memory: 300MB, disk: 2GB}\n")
    load_project(tmp_path)
    assert database.limits() == Limits(tmp_path / ".headwater" / "lake", "300MB", "2GB", 3)
    file.write_text("duckdb: {memory: 80%}\n")
    with raises_code("CONF_INVALID", match=r"key 'duckdb.memory'.*80% is no size; write 512MB"):
        conf.load(tmp_path, "local")
    file.write_text("duckdb: {ram: 1GB}\n")
    with raises_code("CONF_INVALID", match="unknown key 'duckdb.ram'; known: disk, memory"):
        conf.load(tmp_path, "local")
