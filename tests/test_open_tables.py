"""Tables that stay open: the files of a version are those that a table opened anew has, whatever happened."""

from __future__ import annotations

import random
import shutil
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from raising import raises_code
from test_final import seeded

from headwater.storage import delta, listing, log, rewriting, snapshots
from headwater.storage.lake import Place
from headwater.storage.parquet import Files

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("amount", pa.decimal128(18, 2)),
        ("is_so", pa.bool_()),
        ("weight", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string())])),
        ("with.dot", pa.int32()),
    ]
)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_000)


def row(draw: random.Random) -> dict[str, Any]:
    at = draw.choice([FIRST, LAST, datetime(1969, 12, 31, 23, 59, 59, 123_456), datetime(2026, 11, 1, 12)])
    found: dict[str, Any] = {
        "n": draw.choice([-(2**63), 2**63 - 1, 0, 7]),
        "small": draw.randrange(-(2**15), 2**15),
        "text": draw.choice(["", "a", '\U0001f600 "quoted"', "x" * 40, "é%20/", "\x00"]),
        "at": at.replace(tzinfo=UTC),
        "local": at,
        "day": at.date(),
        "amount": Decimal(draw.randrange(-999, 999)) / 100,
        "is_so": draw.random() < 0.5,
        "weight": draw.choice([float("nan"), -0.0, 1.5]),
        "tags": ["a"] * draw.randrange(3),
        "place": {"city": "Bern"},
        "with.dot": draw.randrange(9),
    }
    return {name: None if draw.random() < 0.2 else value for name, value in found.items()}


def write(table: Path, draw: random.Random) -> None:
    """One commit: by delta-rs, which has bounds of its own, or as the engine writes it."""
    rows = pa.Table.from_pylist([row(draw) for _ in range(draw.randrange(1, 4))], COLUMNS)
    kind = draw.choice(["append", "append", "overwrite", "here", "here", "merge", "optimize"])
    if not (table / "_delta_log").exists() or kind in ("append", "overwrite"):
        write_deltalake(table, rows, mode="overwrite" if kind == "overwrite" else "append")
        return
    opened = DeltaTable(table)
    version = opened.version()
    if kind == "here":
        files = Files(Place("silver.t", 1, table))
        added = rewriting.added(table, dict.fromkeys(files.write(rows, uuid.uuid4().hex), version))
        gone = [{"remove": {"path": a["path"], "dataChange": True}} for a in adds_of(opened)[:1]]
        log.write(table, version + 1, [{"commitInfo": {}}, *added, *(gone if draw.random() < 0.5 else [])])
    elif kind == "merge":
        rows = rows.select(["n", "text"]).slice(0, 1)
        merger = opened.merge(rows, "t.n = s.n", source_alias="s", target_alias="t")
        merger.when_matched_update({"text": "s.text"}).when_not_matched_insert({"n": "s.n"}).execute()
    else:
        opened.optimize.compact()
    if DeltaTable(table).version() == version:  # there was nothing to do
        write_deltalake(table, rows, mode="append")


def adds_of(table: DeltaTable) -> list[dict[str, Any]]:
    return pa.table(table.get_add_actions(flatten=True)).to_pylist()


def paths(adds: pa.Table) -> list[str]:
    return sorted(adds["path"].to_pylist()) if len(adds) else []


def anew(table: Path, version: int) -> list[str]:
    return paths(pa.table(DeltaTable(table, version=version).get_add_actions(flatten=True)))


after = listing.after


def tells_of_files(files: pa.Table, actions: list[dict[str, Any]]) -> pa.Table | None:
    found = after(files, actions)
    assert found is not None or any("metaData" in action for action in actions)
    return found


def said(adds: pa.Table) -> list[dict[str, Any]]:
    return sorted(adds.to_pylist(), key=lambda file: str(file["path"]))


@pytest.mark.parametrize("seed", range(8))
def test_the_files_are_those_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw, table, newest = seeded(seed), tmp_path / "t", -1
    monkeypatch.setattr(listing, "after", tells_of_files)
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
            found, opened = snapshots.adds(table, version), DeltaTable(table, version=version)
            assert paths(found) == anew(table, version), f"seed {seed}"
            assert found.schema == listing.columns(pa.schema(opened.schema().to_arrow()))
            assert said(found) == said(listing.of(opened)), f"seed {seed}"


def test_it_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, table, times = seeded(1), tmp_path / "t", []
    opened = delta.opened

    def counted(path: Path, version: int | None = None) -> DeltaTable:
        times.append(version)
        return opened(path, version)

    monkeypatch.setattr(delta, "opened", counted)
    for version in range(6):
        write_deltalake(table, pa.Table.from_pylist([row(draw)], COLUMNS), mode="append")
        assert paths(snapshots.adds(table, version)) == paths(snapshots.adds(table, version))
    assert times == [0]
    for version in (2, 5):
        assert paths(snapshots.adds(table, version)) == anew(table, version) and times == [0]
    snapshots.adds(table, 1)  # long before the newest
    assert times == [0, 1] and paths(snapshots.adds(table, 5)) == anew(table, 5) and times == [0, 1]


def test_a_commit_that_says_more_than_files_is_read_by_delta_rs(tmp_path: Path) -> None:
    draw, table = seeded(1), tmp_path / "t"
    write(table, draw)
    assert "max.extra" not in snapshots.adds(table, 0).column_names
    more = pa.table({"extra": pa.array([5], pa.int64())})
    write_deltalake(table, more, mode="append", schema_mode="merge")
    write_deltalake(table, more, mode="append", schema_mode="merge")
    assert sorted(snapshots.adds(table, 2)["max.extra"].to_pylist(), key=str) == [5, 5, None]


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
