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

from headwater import query
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


def test_many_rows_are_shared_by_threads(tmp_path: Path) -> None:
    database.limit(Limits(tmp_path, threads=3))
    for size, threads in ((0, 1), (scratch.MANY - 1, 1), (scratch.MANY, 3), (0, 1)):
        with scratch.connection(size) as connection:
            assert connection.execute("SELECT current_setting('threads')").fetchone() == (threads,)


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
from headwater import query
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


# Streamed, this never ends where DuckDB has two threads: each part of the UNION waits for the other.
_ROWS = "SELECT range AS id, CASE WHEN range % 10 < {} THEN 2 ELSE 1 END AS n FROM range(1000000)"
UNITED = (
    f"WITH old AS MATERIALIZED ({_ROWS.format(0)}), new AS MATERIALIZED ({_ROWS.format(3)}) "
    "SELECT new.id, new.n FROM new LEFT JOIN old ON new.id = old.id WHERE new.n <> old.n "
    "UNION ALL SELECT old.id, 0 FROM old ANTI JOIN new ON new.id = old.id"
)


def test_a_union_of_joins_with_many_rows_ends() -> None:
    database.limit(Limits(lake=None, memory="512MB", threads=2))
    with scratch.connection() as connection:
        assert len(database.table(connection, UNITED)) == 300_000
        limited = f"SELECT * FROM ({UNITED}) WHERE id < $most"
        assert len(database.table(connection, limited, {"most": 10})) == 3


def test_so_does_a_user_s(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "gold").mkdir()
    (tmp_path / "conf/local.yaml").write_text("kafka: embedded\nduckdb: {memory: 512MB}\n")
    settings = "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    with query.connect(tmp_path, env="local") as lake:
        memory, folder = lake.execute(settings).fetchall()[0]
        assert memory == "488.2 MiB" and Path(folder).is_relative_to(tmp_path / ".headwater/lake")
        assert lake.execute(UNITED).fetchone() is not None
        assert len(lake.fetchmany(10)) == 10
        assert sum(len(batch) for batch in lake.execute(UNITED).to_arrow_reader(10_000)) == 300_000
    assert len(query.run(UNITED, project=tmp_path).rows) == 300_000


def test_an_interrupt_while_its_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "_folders", {})
    monkeypatch.setattr(database.locks, "locked", interrupted)
    with pytest.raises(KeyboardInterrupt):
        database.opened(database.Limits(lake=tmp_path))
    assert list(tmp_path.glob("_scratch/*"))
    database.clear()
    assert not list(tmp_path.glob("_scratch/*"))
