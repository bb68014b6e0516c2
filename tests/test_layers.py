"""Rows that are merged into stand apart by their time: a batch writes few of the old ones anew."""

from __future__ import annotations

import random
import shutil
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from raising import raises_code
from test_final import seeded

from headwater.operations.maintain.clean import clean
from headwater.operations.maintain.compact import compact
from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import checksums, feed, layers, log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.layers import Layers, apart
from headwater.storage.target import GONE, Target

TIME = pa.timestamp("us", "UTC")
COLUMNS = pa.schema([("host", pa.string()), ("since", TIME), ("n", pa.int64())])
COUNTS = Aggregate((Output("host", "key"), Output("since", "key", "start"), Output("n", "count")), "time")
HOSTS = [f"host-{n}" for n in range(5)]
Held = dict[tuple[str, datetime], int]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few rows were many."""
    monkeypatch.setattr(layers, "COPIED", 50)
    monkeypatch.setattr(layers, "APART", 20)


def at(window: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=5 * window)


def made(root: Path) -> Target:
    return Target(Lake(root).create("gold.x", COLUMNS, properties={"delta.enableChangeDataFeed": "true"}))


def merge(target: Target, held: Held, windows: list[int]) -> None:
    """One reading of each host in each of these windows."""
    keys = [(host, at(window)) for window in windows for host in HOSTS]
    rows = pa.table([[h for h, _ in keys], [t for _, t in keys], [1] * len(keys)], schema=COLUMNS)
    target.merge(
        rows, COUNTS.keys, COUNTS.merged(COLUMNS), Identity("gold.x", 1, target.last("gold.x") + 1, {})
    )
    held.update({key: held.get(key, 0) + 1 for key in keys})


def rows(table: pa.Table) -> Held:
    found = {(row["host"], row["since"]): row["n"] for row in table.to_pylist()}
    assert len(found) == len(table)
    return found


@pytest.mark.usefixtures("small")
def test_rows_stand_apart_by_their_time() -> None:
    draw = seeded(random.randrange(2**32))
    for _ in range(200):
        sizes = [draw.randint(1, 30) for _ in range(draw.randint(1, 50))]
        times = [at(window) for window, size in enumerate(sizes) for _ in range(size)]
        times += [None] * draw.choice([0, 0, 5])  # type: ignore[list-item]
        draw.shuffle(times)
        rows = pa.table({"n": [*range(len(times))], "at": pa.array(times, TIME)})
        parts = apart(rows, "at")
        assert sorted(row for part in parts for row in part["n"].to_pylist()) == [*range(len(times))]
        ends = [(min(known), max(known)) for part in parts if (known := part["at"].drop_null().to_pylist())]
        assert all(before[1] < after[0] for before, after in pairwise(ends))  # no time in two
        assert max(map(len, parts)) < 2 * 20 + max(sizes) + 5 and apart(rows, None) == [rows]
        assert len(times) < 40 or len(parts) > 1 or max(sizes) > 20 or len(sizes) == 1


def test_when_rows_are_parted() -> None:
    few, many = layers.COPIED, 2 * layers.COPIED
    of = Layers()
    assert not of.due(few, 10) and of.due(few + 1, 10) and not of.due(many, many // 4)
    of.done(many, largest=10, rows=many)
    assert not of.due(10, 10) and of.due(many, 10)  # it helped, until a late row came
    of.done(many, largest=10, rows=many)
    assert not of.due(many, 10) and not of.due(many, 10)  # it did not
    assert of.due(2 * many + 1, 10)
    of = Layers()
    of.done(many, largest=many, rows=many)  # all are of one time
    assert not of.due(many, 10)


def test_rows_with_keys_that_no_file_can_have_are_merged_with_none(tmp_path: Path) -> None:
    held, target = Held(), made(tmp_path)
    for windows, operation in (([0, 1], "WRITE"), ([2, 9], "WRITE"), ([9, 10], "MERGE"), ([11], "WRITE")):
        merge(target, held, windows)
        commit = log.read(target.place.path, target.version)
        assert commit.operation == operation
        assert rows(target.held(COLUMNS)) == held
    gone = pa.table([["host-0"], [at(50)], [0], [True]], schema=COLUMNS.append(pa.field(GONE, pa.bool_())))
    target.change(gone, COUNTS.keys, Identity("gold.x", 1, target.last("gold.x") + 1, {}))
    assert rows(target.held(COLUMNS)) == held


def copied(root: Path, seed: int) -> int:
    """How many rows batches write anew: a late one comes now and then to windows that stand in one file."""
    draw, held, target = random.Random(seed), Held(), made(root)
    merge(target, held, list(range(100)))
    assert len(target.files()) == 1
    before = target.version
    for batch in range(60):
        merge(target, held, [100 + batch // 4, *([draw.randrange(100)] if batch % 12 == 1 else [])])
    assert rows(target.held(COLUMNS)) == held and len(held) == 575
    commits = log.commits(target.place.path, after=before, upto=target.version)
    return sum(int(c.metrics["num_target_rows_copied"]) for c in commits if c.operation == "MERGE")


@pytest.mark.usefixtures("small")
def test_a_batch_writes_few_old_rows_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    parted = copied(tmp_path / "parted", seed)
    monkeypatch.setattr(layers, "COPIED", 10**9)
    assert 3 * parted < copied(tmp_path / "not", seed)


@pytest.mark.usefixtures("small")
def test_parting_changes_no_row_for_anyone(tmp_path: Path) -> None:
    draw, held, target = random.Random(8), Held(), made(tmp_path)
    path, followed, before = target.place.path, Held(), Held()
    for window in range(60):
        merge(target, held, [window, *([draw.randrange(window)] if window > 20 else [])])
    parted = 0
    for commit in log.commits(path, after=0, upto=target.version):
        now = rows(pa.table(DeltaTable(path, version=commit.version).to_pyarrow_table()))
        if commit.operation == "OPTIMIZE":
            parted += 1
            assert now == before and not commit.added and not commit.removed and commit.batches == {}
        for file in feed.files(commit, path) if commit.operation != "OPTIMIZE" else ():
            for row in feed.read(file.path, COLUMNS).to_pylist():
                assert not row[GONE]
                followed[row["host"], row["since"]] = row["n"]
        assert followed == now
        before = now
    assert parted > 0 and followed == held


@pytest.mark.usefixtures("small")
def test_whoever_opens_a_table_shares_it_until_it_is_another_one(tmp_path: Path) -> None:
    place = made(tmp_path).place
    one = Target.shared(place)
    merge(one, Held(), [0])
    assert Target.shared(place) is one and one.version == 1
    earlier = tmp_path / "earlier"
    shutil.copytree(place.path, earlier)
    merge(Target(place), Held(), [1])  # by another process: whoever has it open is not moved past that
    other = Target.shared(place)
    assert (other.version, other.last("gold.x")) == (2, 1)
    with raises_code("WRITTEN_BY_OTHERS", match="past version 1, so something else wrote to it"):
        merge(one, Held(), [2])
    shutil.rmtree(place.path)
    earlier.rename(place.path)
    assert Target.shared(place) is not other and Target.shared(place).version == 1
    shutil.rmtree(place.path)
    assert (anew := Target.shared(made(tmp_path).place)).place.path == place.path
    assert anew.version == 0 and not anew.flows


@pytest.mark.usefixtures("small")
def test_a_table_is_opened_by_others_while_a_flow_commits_to_it(tmp_path: Path) -> None:
    target, held, done = Target.shared(made(tmp_path).place), Held(), threading.Event()
    opened: set[Target] = set()

    def open_it() -> None:
        while not done.is_set():
            opened.add(Target.shared(target.place))

    opener = threading.Thread(target=open_it)
    opener.start()
    try:
        for window in range(50):
            merge(target, held, [window])
    finally:
        done.set()
        opener.join()
    assert opened == {target} and rows(target.held(COLUMNS)) == held


@pytest.mark.usefixtures("small")
def test_rows_are_parted_although_maintenance_has_committed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, target = Held(), made(tmp_path)
    for window in range(40):
        merge(target, held, [window])
    compact(target, ["since"], settled=0.0)

    def due(self: Layers, copied: int, rows: int) -> bool:
        target.keep(timedelta(seconds=copied))
        return True

    monkeypatch.setattr(Layers, "due", due)
    merge(target, held, [0])
    assert len(target.files()) > 1 and rows(target.held(COLUMNS)) == held


def test_rows_that_go_and_keys_that_are_no_time(tmp_path: Path) -> None:
    held, target = Held(), made(tmp_path)
    for window in range(1, 60):
        merge(target, held, [window, 0])
    gone = [(host, at(window)) for window in (0, 30, 59) for host in HOSTS[:2]]
    values = [pa.array([h for h, _ in gone]), pa.array([t for _, t in gone], TIME), pa.nulls(6, pa.int64())]
    change = pa.table([*values, pa.array([True] * 6)], names=[*COLUMNS.names, GONE])
    target.change(change, ["host", "since"], Identity("gold.x", 1, target.last("gold.x") + 1, {}))
    for key in gone:
        del held[key]
    assert rows(target.held(COLUMNS)) == held

    plain = pa.schema([("k", pa.string()), ("n", pa.int64())])
    by_key = Aggregate((Output("k", "key"), Output("n", "count")))
    other = Target(Lake(tmp_path).create("gold.y", plain, properties={}))
    for turn in range(5):
        keys = [f"k{n}" for n in range(100 if turn < 2 else 3)]
        batch = pa.table([keys, [1] * len(keys)], schema=plain)
        other.merge(batch, by_key.keys, by_key.merged(batch.schema), Identity("gold.y", 1, turn, {}))
    assert other.version == 5  # one commit each


@pytest.mark.usefixtures("small")
def test_of_keys_that_are_no_time_rows_are_parted_by_another_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch brings 20 rows, and changes five of the 20 that came last; one row has no time."""
    columns = pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", TIME)])

    def copied(lake: Path) -> int:
        target = Target(Lake(lake).create("gold.x", columns, properties={}))
        draw, held, found = random.Random(5), dict[str, tuple[int, datetime | None]](), 0
        for batch in range(40):
            newest = [*held][-20:]
            some = draw.sample(newest, min(5, len(newest)))
            made = {f"{draw.random()}": (0, at(batch) if held else None) for _ in range(20)}
            changed = {**made, **{key: (held[key][0] + 1, held[key][1]) for key in some}}
            listed = [{"id": key, "n": n, "at": time, GONE: False} for key, (n, time) in changed.items()]
            rows = pa.Table.from_pylist(listed, schema=columns.append(pa.field(GONE, pa.bool_())))
            version = target.change(rows, ["id"], Identity("gold.x", 1, batch, {}))
            held |= changed
            commits = log.commits(target.place.path, after=version - 1, upto=version)
            found += sum(int(commit.metrics.get("num_target_rows_copied", 0)) for commit in commits)
        there = {row["id"]: (row["n"], row["at"]) for row in target.held(columns).to_pylist()}
        assert there == held
        return found

    parted = copied(tmp_path / "parted")
    monkeypatch.setattr(layers, "APART", 10**9)
    assert 2 * parted < copied(tmp_path / "not")


@pytest.mark.usefixtures("small")
def test_a_crash_while_rows_are_parted_leaves_the_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: Any, **__: Any) -> bool:
        raise Crash

    held, target = Held(), made(tmp_path)
    for window in range(30):
        merge(target, held, [window, *range(max(0, window - 1), window)])
    crashed = 0
    for window in range(30, 40):
        with monkeypatch.context() as patched:
            patched.setattr(Target, "rewrite", crash)
            try:
                merge(target, held, [window, *range(0, 30, 15)])
            except Crash:
                crashed += 1
                for key in ((host, at(each)) for each in [window, *range(0, 30, 15)] for host in HOSTS):
                    held[key] = held.get(key, 0) + 1
                target = Target(target.place)
        assert rows(target.held(COLUMNS)) == held
    merge(target, held, [41, 0])
    assert crashed > 0 and rows(target.held(COLUMNS)) == held
    assert all(pq.read_metadata(file).num_rows for file in target.files())


def test_a_table_that_only_grew_is_read_where_its_log_was_cleaned_since(tmp_path: Path) -> None:
    """What delta-rs has open is as old as the table, and the entries since are in a checkpoint alone."""
    target = made(tmp_path)
    for number in range(6):
        rows = pa.table([["host-0"], [at(number)], [number]], schema=COLUMNS)
        target.append(target.write(rows, f"{number:012d}"), Identity("gold.x", 1, number, {}))
    checksums.checkpoint(target.place.path)
    before = datetime.now(UTC) + timedelta(days=1)
    clean(target.place.path, upto=target.version, before=before)
    assert log.first(target.place.path) > 1
    assert sorted(target.held(COLUMNS)["n"].to_pylist()) == [*range(6)]
    assert len(target.files()) == 6
