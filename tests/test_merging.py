"""A merge in memory: the table is what a dictionary says, and so is the feed of its changes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from raising import raises_code
from test_final import seeded

from headwater.storage import feed, log, merging, recent
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import GONE, Target

BEGIN = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))  # as Arrow gives it back
COLUMNS = pa.schema(
    [("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("x", pa.float64())]
)
FEED = {"delta.enableChangeDataFeed": "true"}
Key = tuple[str | None, datetime | None]


def target(root: Path, properties: dict[str, str] = FEED) -> Target:
    return Target(Lake(root).create("gold.t", COLUMNS, properties=properties))


def identity(sequence: int) -> Identity:
    return Identity("gold.t", 1, sequence, {})


def change(table: Target, rows: dict[Key, tuple[Any, ...] | None], sequence: int) -> int:
    listed = [
        {
            "k": k,
            "at": at,
            "n": (value or (None, None))[0],
            "x": (value or (None, None))[1],
            GONE: value is None,
        }
        for (k, at), value in rows.items()
    ]
    schema = COLUMNS.append(pa.field(GONE, pa.bool_()))
    return table.change(pa.Table.from_pylist(listed, schema=schema), ("k", "at"), identity(sequence))


def held(table: DeltaTable) -> Counter[str]:
    return Counter(map(repr, pa.table(table.to_pyarrow_table()).to_pylist()))


def as_rows(known: dict[Key, tuple[Any, ...]]) -> Counter[str]:
    return Counter(repr({"k": k, "at": at, "n": n, "x": x}) for (k, at), (n, x) in known.items())


@pytest.mark.parametrize("by_delta_rs", [False, True], ids=["here", "some by delta-rs"])
@pytest.mark.parametrize("seed", range(4))
def test_the_table_and_its_feed_are_what_a_dictionary_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, by_delta_rs: bool
) -> None:
    draw, known = seeded(seed), dict[Key, tuple[Any, ...]]()
    table = target(tmp_path)
    if seed % 2:
        table.cluster(["k"])
    merges, path = 0, table.place.path
    for sequence in range(14):
        if by_delta_rs:
            monkeypatch.setattr(merging, "MOST", draw.choice([0, 1 << 22]))
        keys = {
            (draw.choice([None, *"abcdef"]), draw.choice([None, BEGIN + timedelta(hours=draw.randrange(4))]))
            for _ in range(draw.randrange(1, 12))
        }
        rows: dict[Key, tuple[Any, ...] | None] = {
            key: draw.choice([None, (draw.randrange(9), draw.choice([None, float("nan"), 0.5]))])
            for key in keys
        }
        before, version = dict(known), table.version
        change(table, rows, sequence)
        for key, value in rows.items():
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value
        assert held(DeltaTable(path)) == as_rows(known), f"seed {seed}, batch {sequence}"
        assert table.done(identity(sequence)) and not table.done(identity(sequence + 1))
        made = [*log.commits(path, after=version, upto=table.version)]  # delta-rs leaves out what is nothing
        assert not any(commit.added for commit in made[1:])
        signed = Counter[str]()
        for file in [
            file for commit in made if commit.added or commit.removed for file in feed.files(commit, path)
        ]:
            for row in feed.signed(file.path, COLUMNS).to_pylist():
                sign = row.pop(feed.SIGN)
                signed[repr(row)] += sign
        want = as_rows(known)
        want.subtract(as_rows(before))
        assert {k: v for k, v in signed.items() if v} == {k: v for k, v in want.items() if v}
        merges += any(commit.removed for commit in made)
    assert merges > 4
    kinds = Counter(
        pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all())["_change_type"].to_pylist()
    )
    assert {*kinds} == {"insert", "delete", "update_preimage", "update_postimage"}
    assert kinds["update_preimage"] == kinds["update_postimage"]


def test_only_files_that_have_a_row_which_changes_are_written_anew(tmp_path: Path) -> None:
    table = target(tmp_path)
    change(table, {("a", BEGIN): (1, 0.5), ("c", BEGIN): (1, 0.5)}, 0)
    change(table, {("b", BEGIN): (2, 0.5), ("d", BEGIN): (2, 0.5)}, 1)
    first, second = sorted(table.files(), key=lambda file: Path(file).stat().st_mtime_ns)
    change(table, {("b", BEGIN): (3, 0.5)}, 2)
    assert first in table.files() and second not in table.files() and len(table.files()) == 2
    assert [recent.KEPT.find(file) is not None for file in (*table.files(), second)] == [True, True, False]
    change(table, {("b", BEGIN): None, ("d", BEGIN): None}, 3)
    assert table.files() == [first]
    version = change(table, {("z", BEGIN): None}, 4)  # which is not there
    assert log.read(table.place.path, version).files == (0, 0) and table.done(identity(4))


def test_of_rows_that_were_seen_only_their_files_are_read(tmp_path: Path) -> None:
    table, known, written = target(tmp_path), dict[Key, tuple[Any, ...]](), list[str]()
    schema = COLUMNS.append(pa.field(GONE, pa.bool_()))

    def changed(keys: str, value: int, files: list[str] | None = None) -> int:
        """How many files it looked in; the one that it wrote is noted."""
        listed = [{"k": key, "at": BEGIN, "n": value, "x": 0.5, GONE: False} for key in keys]
        rows = pa.Table.from_pylist(listed, schema=schema)
        sequence = table.last("gold.t") + 1
        version = table.change(rows, ("k", "at"), identity(sequence), files=files)
        known.update({(key, BEGIN): (value, 0.5) for key in keys})
        assert held(DeltaTable(table.place.path)) == as_rows(known)
        made = log.read(table.place.path, version)
        written.extend(file.path for file in made.added)
        return int(made.metrics.get("num_target_files_scanned", 0))

    changed("ace", 0)
    assert changed("bd", 0, []) == 1  # rows that were not seen: by its bounds the file may have them
    changed("h", 0)
    assert changed("dh", 1, written[1:3]) == 2
    assert changed("dh", 2) == 2 and changed("dh", 3, written[-1:]) == 1
    assert changed("bc", 4, [written[1], written[0]]) > 1  # one of them is gone meanwhile


def test_columns_whose_values_repeat_get_a_dictionary(tmp_path: Path) -> None:
    table = target(tmp_path)
    change(table, {(f"{n}", BEGIN): (n % 3, None) for n in range(2_000)}, 0)
    (file,) = table.files()
    group = pq.read_metadata(file).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.has_dictionary_page} == {"at", "n", "x"}


def test_a_table_without_a_feed_gets_none(tmp_path: Path) -> None:
    table = target(tmp_path, {})
    change(table, {("a", BEGIN): (1, 0.5), ("b", BEGIN): (1, 0.5)}, 0)
    made = log.read(table.place.path, change(table, {("a", BEGIN): (2, 0.5), ("c", BEGIN): (1, 0.5)}, 1))
    assert made.removed == 1 and len(made.added) == 1 and not made.changes
    assert len(held(DeltaTable(table.place.path))) == 3


def test_what_maintenance_has_put_together_meanwhile_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = target(tmp_path)
    change(table, {("a", BEGIN): (1, 0.5)}, 0)
    change(table, {("b", BEGIN): (2, 0.5)}, 1)
    merged, others = merging.merged, []

    def meanwhile(*args: Any) -> merging.Merged:
        found = merged(*args)
        if not others:
            others.append(table.put_in_order(table.files(), ["k"], table._next()))
        return found

    monkeypatch.setattr(merging, "merged", meanwhile)
    change(table, {("a", BEGIN): (3, 0.5)}, 2)
    assert others[0] and held(DeltaTable(table.place.path)) == as_rows(
        {("a", BEGIN): (3, 0.5), ("b", BEGIN): (2, 0.5)}
    )
    left = [path for path in table.place.path.rglob("*.parquet") if "_delta_log" not in path.parts]
    referred = {*table.files()} | {
        path
        for commit in log.commits(table.place.path, after=0, upto=table.version)
        for path in (*commit.left, *(file.path for file in commit.changes))
    }
    assert {*map(str, left)} == referred  # and nothing of the first try is left


def test_a_damaged_file_is_not_merged_into(tmp_path: Path) -> None:
    table = target(tmp_path)
    change(table, {("a", BEGIN): (1, 0.5)}, 0)
    (file,) = map(Path, table.files())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with raises_code("FILE_DAMAGED"):
        change(table, {("a", BEGIN): (2, 0.5)}, 1)
