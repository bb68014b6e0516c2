"""Tables that stay open: the files of a version are those that a table opened anew has, whatever happened."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from raising import raises_code
from test_final import seeded

from headwater.storage import delta, snapshots


def write(table: Path, draw: random.Random) -> None:
    mode = "overwrite" if draw.random() < 0.2 else "append"
    write_deltalake(table, pa.table({"n": [draw.randrange(100)]}), mode=mode)


def paths(adds: pa.Table) -> list[str]:
    return sorted(adds["path"].to_pylist()) if len(adds) else []


def anew(table: Path, version: int) -> list[str]:
    return paths(pa.table(DeltaTable(table, version=version).get_add_actions(flatten=True)))


@pytest.mark.parametrize("seed", range(4))
def test_the_files_are_those_of_the_version(tmp_path: Path, seed: int) -> None:
    draw, table, newest = seeded(seed), tmp_path / "t", -1
    for _ in range(20):
        if newest > 3 and draw.random() < 0.15:  # another one takes its place
            shutil.rmtree(table)
            newest = -1
        for _ in range(draw.randrange(1, 4)):
            write(table, draw)
            newest += 1
        if draw.random() < 0.3:
            DeltaTable(table).create_checkpoint()
        for version in {newest, draw.randrange(newest + 1)}:
            assert paths(snapshots.adds(table, version)) == anew(table, version), f"seed {seed}"


def test_it_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, table, times = seeded(1), tmp_path / "t", []
    opened = delta.opened

    def counted(path: Path, version: int | None = None) -> DeltaTable:
        times.append(version)
        return opened(path, version)

    monkeypatch.setattr(delta, "opened", counted)
    for version in range(6):
        write(table, draw)
        assert paths(snapshots.adds(table, version)) == paths(snapshots.adds(table, version))
    assert times == [0]
    snapshots.adds(table, 2)
    assert times == [0, 2] and paths(snapshots.adds(table, 5)) == anew(table, 5) and times == [0, 2]


def test_a_damaged_log_is_said_to_be(tmp_path: Path) -> None:
    draw, table = seeded(1), tmp_path / "t"
    for _ in range(3):
        write(table, draw)
    snapshots.adds(table, 1)
    entry = delta.entry(table, 2)
    content = entry.read_bytes()
    for damaged in (b"", content[: len(content) // 2]):
        entry.write_bytes(damaged)
        with raises_code("LOG_DAMAGED"):
            snapshots.adds(table, 2)
    entry.write_bytes(content)
    assert paths(snapshots.adds(table, 2)) == anew(table, 2)
    shutil.rmtree(table)
    with raises_code("TABLE_MISSING"):
        snapshots.adds(table, 2)


def test_of_many_those_that_were_asked_for_last_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, tables = seeded(1), [tmp_path / name for name in "abc"]
    monkeypatch.setattr(snapshots, "MOST", 2)
    monkeypatch.setattr(snapshots, "_OPEN", snapshots._Open())
    for table in tables:
        write(table, draw)
    for table in (*tables[:2], tables[0], tables[2]):
        snapshots.adds(table, 0)
    assert [*snapshots._OPEN._found] == [tables[0], tables[2]]
