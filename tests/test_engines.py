"""What docs/engines.md says of other engines is run on a lake, but for Trino's."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.query import on_duckdb
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

PAGE = Path(__file__).parent.parent / "docs" / "engines.md"
USAGE = pa.schema([("hostname", pa.string()), ("avg_usage", pa.float64()), ("_partial", pa.int64())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with gold.cpu_usage_5m, of two hosts."""
    root: Path = tmp_path_factory.mktemp("lake")
    target = Target(Lake(root).create("gold.cpu_usage_5m", USAGE, properties={}))
    rows = [
        {"hostname": "b", "avg_usage": 2.5, "_partial": 1},
        {"hostname": "a", "avg_usage": 1.5, "_partial": 1},
    ]
    folder = target.place.path / "000000000000-test"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=USAGE), folder / "part.parquet")
    target.append([f"{folder.name}/part.parquet"], Identity("gold.cpu_usage_5m", 1, 0, {}))
    return root


def snippets(engine: str, lake: Path) -> list[str]:
    found = re.findall(rf"^```\w+\n(?:--|#) {engine}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found, f"{PAGE} has none of {engine}"
    return [text.replace("<lake>", str(lake)) for text in found]


def printed(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, str(PAGE), "exec"), {})
    return out.getvalue()


def asked(sql: str, connection: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """The rows of the last statement; the extension is there already, so it is not fetched."""
    return connection.execute(sql.replace("INSTALL delta; LOAD delta;", "")).fetchall()


def test_duckdb(lake: Path) -> None:
    catalog, table = snippets("DuckDB", lake)
    with on_duckdb.reader() as connection:
        assert asked(catalog, connection) == [("gold.cpu_usage_5m", 1, str(lake / "gold/cpu_usage_5m/g0001"))]
        assert asked(table, connection) == [("a", 1.5), ("b", 2.5)]


def test_pandas(lake: Path) -> None:
    (code,) = snippets("pandas", lake)
    lines = [line.split() for line in printed(code).splitlines()]
    assert lines[0][0] == "1" and [line[-2:] for line in lines[1:]] == [["a", "1.5"], ["b", "2.5"]]


def test_polars(lake: Path) -> None:
    (code,) = snippets("polars", lake)
    found = printed(code)
    assert "shape: (2, 2)" in found and found.index("1.5") < found.index("2.5")


def test_trino_is_told_of_the_folder_that_there_is(lake: Path) -> None:
    (sql,) = snippets("Trino", lake)
    (folder,) = re.findall(r"'local:///(.*?)'", sql)
    assert (lake / folder / "_delta_log").is_dir()
