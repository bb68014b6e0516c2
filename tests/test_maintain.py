"""Maintenance: fewer files and a shorter log, and nobody who reads loses a row or gets one twice."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.errors import DamageError
from headwater.operations import maintain
from headwater.operations.maintain.clean import clean, forget_uncommitted
from headwater.operations.maintain.compact import compact
from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import log, ranges, recent, stored
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile, intents_of
from headwater.storage.lake import Lake
from headwater.storage.ranges import Position
from headwater.storage.target import Target

NAME = "silver.t"
COLUMNS = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
COUNTS = pa.schema([("k", pa.string()), ("n", pa.int64())])
BY_KEY = Aggregate((Output("k", "key"), Output("n", "count")), window="")
LONG_AGO, SOON = datetime(2020, 1, 1, tzinfo=UTC), timedelta(days=1)


class Crash(BaseException):
    """The process ends here."""


class Writer:
    """An appended table, whose rows are numbered in their order."""

    def __init__(self, root: Path) -> None:
        self.target = Target(Lake(root).create(NAME, COLUMNS, properties={}))
        self.path = self.target.place.path
        self.rows = 0

    def append(self, *sizes: int) -> None:
        """One commit of so many files, of so many rows each."""
        sequence = self.target.last(NAME) + 1
        folder = self.path / f"{sequence:012d}-{random.getrandbits(32):08x}"
        folder.mkdir()
        for at, size in enumerate(sizes):
            numbers = range(self.rows, self.rows + size)
            times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in numbers]
            rows = pa.table([list(numbers), times, [f"row {n}" for n in numbers]], schema=COLUMNS)
            pq.write_table(rows, folder / f"part-{at:05d}.parquet")
            self.rows += size
        files = [f"{folder.name}/part-{at:05d}.parquet" for at in range(len(sizes))]
        self.target.append(files, Identity(NAME, 1, sequence, {"bronze.raw": sequence}))

    def checkpoint(self) -> None:
        DeltaTable(self.path).create_checkpoint()


class Reader:
    """A flow below: it keeps where it is, and checks that the rows come once and in order."""

    def __init__(self, table: Path) -> None:
        self.table, self.at, self.rows = table, Position(generation=1), 0

    def take(self, max_rows: int = 10**9, upto: Position | None = None) -> bool:
        found = ranges.take(self.table, NAME, self.at, max_rows=max_rows, max_bytes=10**12, upto=upto)
        if found is None:
            return False
        for file in found.files:
            numbers = pq.read_table(file, partitioning=None)["n"].to_pylist()
            assert numbers == list(range(self.rows, self.rows + len(numbers)))
            self.rows += len(numbers)
        self.at = Position.parse(found.upto.json())
        return True

    def drain(self) -> None:
        while self.take():
            pass

    @property
    def holds(self) -> int:
        """The version that maintenance must not pass."""
        return self.at.version if self.at.snapshot is None else self.at.snapshot


@pytest.mark.parametrize("turn", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in range(1, 4))])
def test_readers_get_each_row_once_and_in_order_whatever_is_maintained(tmp_path: Path, turn: int) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    writer, readers = Writer(tmp_path), list[Reader]()
    for _ in range(200):
        what = rng.random()
        if what < 0.5:
            writer.append(*(rng.randint(1, 5) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))))
        elif what < 0.75 and readers:
            one, other = rng.choice(readers), rng.choice(readers)
            if rng.random() < 0.3 and one.at.snapshot in (None, other.at.snapshot):
                ahead = max(one.rows, other.rows)
                while one.take(rng.choice([3, 1000]), upto=other.at):
                    pass
                assert one.rows == ahead or one.at.snapshot != other.at.snapshot
            else:
                one.take(rng.choice([1, 5, 20, 1000]))
        elif what < 0.80:
            readers.append(Reader(writer.path))
        elif what < 0.88:
            compact(writer.target, None, size=rng.choice([30_000, 100_000, 10**9]))
        elif what < 0.94:
            writer.checkpoint()
        else:
            begun = [r.holds for r in readers if r.at != Position(generation=1)]
            clean(writer.path, upto=min(begun, default=writer.target.version), before=datetime.now(UTC))
    for reader in (*readers, Reader(writer.path)):
        assert ranges.lag(writer.path, reader.at) == writer.rows - reader.rows
        reader.drain()
        assert reader.rows == writer.rows
        assert ranges.lag(writer.path, reader.at) == 0
    files = log.snapshot(writer.path, writer.target.version)
    held = pa.concat_tables([pq.read_table(file.path, partitioning=None) for file in files])
    assert held["n"].to_pylist() == list(range(writer.rows))


def test_small_files_become_one_that_has_their_rows(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(30):
        writer.append(3, 2)
    before = writer.target.version
    assert compact(writer.target, None) == 59
    assert writer.target.version == before + 1 and len(writer.target.files()) == 1
    commit = log.read(writer.path, before + 1)
    assert (commit.operation, commit.added, commit.removed, len(commit.left)) == ("OPTIMIZE", (), 0, 60)
    assert commit.flows == log.read(writer.path, before).flows
    (file,) = log.snapshot(writer.path, before + 1)
    assert pq.read_table(file.path)["n"].to_pylist() == list(range(150)) and file.rows == 150
    assert DeltaTable(writer.path).to_pyarrow_table().schema.field("at").type == COLUMNS.field("at").type
    found = duckdb.sql(f"SELECT count(*), max(text) FROM read_parquet('{file.path}')").fetchall()
    assert found == [(150, "row 99")]
    writer.append(1)  # the writer goes on
    assert compact(writer.target, None) == 0  # too few


def test_files_of_a_flow_of_any_name_are_told_by_it_to_everyone(tmp_path: Path) -> None:
    target = Target(Lake(tmp_path).create(NAME, COLUMNS, properties={}))
    rows = pa.table([[1], [datetime(2026, 1, 1, tzinfo=UTC)], ["a"]], schema=COLUMNS)
    for sequence in range(30):
        written = target.write(rows, f"gold.größe-{sequence:012d}-a")
        target.append(written, Identity(NAME, 1, sequence, {"bronze.raw": sequence}))
    assert compact(target, None) == 29
    for table in (target.read(target.files()), DeltaTable(target.place.path).to_pyarrow_table()):
        assert len(table) == 30


def test_large_files_stay_as_they_are(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(50_000)
    for _ in range(12):
        writer.append(1)
    size = max(file.size for file in log.snapshot(writer.path, writer.target.version))
    assert compact(writer.target, None, size=size) == 11
    large, small = log.snapshot(writer.path, writer.target.version)
    assert (large.rows, small.rows) == (50_000, 12)


def test_rows_that_change_in_place_are_sorted_by_key_once_merges_leave_them_alone(
    tmp_path: Path,
) -> None:
    place = Lake(tmp_path).create("gold.t", COUNTS, properties={"delta.enableChangeDataFeed": "true"})
    target = Target(place)
    keys = [f"k{n:03d}" for n in range(40)]
    random.shuffle(keys)
    for sequence, key in enumerate(keys):
        rows = pa.table([[key], [1]], schema=COUNTS)
        folder = place.path / f"{sequence:012d}-x"
        folder.mkdir()
        pq.write_table(rows, folder / "part-00000.parquet")
        target.append([f"{folder.name}/part-00000.parquet"], Identity("gold.t", 1, sequence, {}))
    assert compact(target, ["k"]) == 0  # they are being written
    assert compact(target, ["k"], settled=0.0) == 39
    (file,) = target.files()
    assert pq.read_table(file)["k"].to_pylist() == sorted(keys)
    target.merge(
        pa.table([["k001", "new"], [5, 1]], schema=COUNTS),
        BY_KEY.keys,
        BY_KEY.merged(COUNTS),
        Identity("gold.t", 1, 40, {}),
    )
    held = {row["k"]: row["n"] for row in target.held(COUNTS).to_pylist()}
    assert held == {**dict.fromkeys(keys, 1), "k001": 6, "new": 1}


def test_a_file_that_a_merge_took_meanwhile_is_not_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    for _ in range(12):
        writer.append(1)
    other = writer.target

    def meanwhile(step: str, name: str) -> None:
        if step == "compacted":
            monkeypatch.undo()
            assert compact(other, None) == 11

    monkeypatch.setattr("headwater.runtime.failpoints.reach", meanwhile)
    assert compact(other, None) == 0
    assert len(other.files()) == 1 and not list(writer.path.glob("together-*/*.parquet"))[1:]


def test_a_checkpoint_forgets_files_that_are_gone(tmp_path: Path) -> None:
    place = Lake(tmp_path).create("gold.t", COUNTS, properties={"delta.enableChangeDataFeed": "true"})
    target = Target(place)

    def count(times: int) -> None:
        for _ in range(times):
            sequence = target.last("gold.t") + 1
            batch = pa.table([["k"], [1]], schema=COUNTS)
            target.merge(batch, BY_KEY.keys, BY_KEY.merged(batch.schema), Identity("gold.t", 1, sequence, {}))

    def size() -> int:
        target.checkpoint(1)
        return int(json.loads((place.path / "_delta_log" / "_last_checkpoint").read_bytes())["size"])

    count(30)
    assert size() > 30  # each merge has left a file
    target.keep(timedelta(0))
    count(1)
    assert size() < 10
    version, flows = target.version, target.flows
    target.keep(timedelta(0))
    assert target.version == version  # it is so already
    target.keep(timedelta(days=30))
    target = Target(place)
    assert (
        target.version == version + 1 and target.flows == flows and log.read(place.path, target.version).ours
    )
    count(5)
    assert size() > 5 and target.held(COUNTS).to_pylist() == [{"k": "k", "n": 36}]


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.torture)])
def test_no_commit_of_maintenance_takes_back_what_flows_have_done_meanwhile(
    tmp_path: Path, count: int
) -> None:
    writer = Writer(tmp_path)
    writer.append(1)
    target, done = writer.target, threading.Event()

    def maintain() -> None:
        for turn in itertools.count():
            if done.is_set():
                return
            target.keep(timedelta(seconds=turn % 2))
            target.expire([], LONG_AGO + timedelta(seconds=turn))

    with ThreadPoolExecutor(1) as pool:
        keeper = pool.submit(maintain)
        try:
            for _ in range(count):
                writer.append(1)
        finally:
            done.set()
        keeper.result()
    batches, expired = -1, ""
    for commit in log.commits(writer.path, after=0, upto=target.version):
        (flow,) = commit.flows.values()
        batches += bool(commit.batches)
        assert flow["sequence"] == commit.batches.get(NAME, batches) == batches
        assert flow.get("expired", "") >= expired
        expired = flow.get("expired", "")
    assert batches == count and expired


def test_what_only_old_versions_hold_is_removed(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for n in range(30):
        writer.append(1)
        if n == 24:
            assert compact(writer.target, None) == 24
            writer.checkpoint()
    kept = log.head(writer.path) - 5
    assert clean(writer.path, upto=kept - 1, before=datetime.now(UTC)).commits == 0  # read no further
    assert clean(writer.path, upto=kept, before=LONG_AGO).commits == 0  # kept for longer
    done = clean(writer.path, upto=10**9, before=datetime.now(UTC))
    assert (done.commits, log.first(writer.path)) == (kept, kept)
    # the compaction is the oldest version: what it took away goes with it
    assert done.files == 0 and len(list(writer.path.rglob("0*/*.parquet"))) == 30
    writer.append(1)
    writer.checkpoint()
    done = clean(writer.path, upto=10**9, before=datetime.now(UTC))
    assert done.files == 25 and done.bytes > 0
    assert DeltaTable(writer.path).to_pyarrow_table().num_rows == 31
    assert len(list(writer.path.glob("0*"))) == 6  # folders go with their files
    reader = Reader(writer.path)
    reader.drain()
    assert reader.rows == 31


def test_what_a_clean_that_was_killed_has_left_of_the_log_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    for _ in range(3):
        writer.append(1)
        writer.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[clean.__module__], "_forget_before", lambda *_: {}["killed"])
        with pytest.raises(KeyError):
            clean(writer.path, upto=10**9, before=datetime.now(UTC))
    first = log.first(writer.path)

    def older() -> list[str]:
        names = [path.name for path in (writer.path / "_delta_log").iterdir()]
        return [name for name in names if name[:20].isdecimal() and int(name[:20]) < first]

    assert first > 0 and older()
    done = clean(writer.path, upto=10**9, before=datetime.now(UTC))
    assert done.bytes > 0 and (done.commits, log.first(writer.path)) == (0, first) and not older()
    assert DeltaTable(writer.path).to_pyarrow_table().num_rows == 3


def test_a_clean_up_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    writer = Writer(tmp_path)
    for n in range(60):
        writer.append(1)
        if n % 15 == 14:
            compact(writer.target, None)
            writer.checkpoint()
    original, crashes = Path.unlink, 0

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if rng.random() < 0.1:
            raise Crash
        original(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    while True:
        try:
            clean(writer.path, upto=10**9, before=datetime.now(UTC))
            break
        except Crash:
            crashes += 1
            reader = Reader(writer.path)
            reader.drain()
            assert reader.rows == 60
    assert crashes
    assert DeltaTable(writer.path).to_pyarrow_table().num_rows == 60
    assert log.first(writer.path) == log.head(writer.path)
    assert len(list(writer.path.glob("*/part-*.parquet"))) <= 17


def test_what_killed_processes_left_is_removed_when_nobody_is_at_work_on_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(2, 2)
    left = writer.path / "000000000007-killed" / "part-00000.parquet"
    left.parent.mkdir()
    left.write_bytes(b"half of a fi")
    assert forget_uncommitted(writer.path, []).files == 0  # it may be at work
    at_work = IntentFile(tmp_path)
    at_work.write(Intent(NAME, 1, 7, {}))
    assert forget_uncommitted(writer.path, [at_work], older=timedelta(0)).files == 0
    staged = left.with_name("part-00001.parquet")
    staged.write_bytes(b"whole")
    files = {NAME: [f"{left.parent.name}/{staged.name}"]}
    at_work.write(Intent(NAME, 1, 7, {}, staged=files))
    done = forget_uncommitted(writer.path, [at_work], older=timedelta(0), alone=True)
    assert (done.files, done.bytes) == (1, 12) and not left.exists() and staged.exists()
    assert forget_uncommitted(writer.path, [], older=timedelta(0)).files == 1 and not left.parent.exists()
    assert DeltaTable(writer.path).to_pyarrow_table().num_rows == 4


def test_a_damaged_note_of_a_generation_that_is_over_holds_nobody(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    place = lake.create(NAME, COLUMNS, properties={})
    note = lake.flow_at(NAME, 1) / "intent.json"
    note.parent.mkdir(parents=True)
    note.write_bytes(bytes(200))
    assert note in lake.notes()
    left = place.path / "000000000007-killed" / "part-00000.parquet"
    left.parent.mkdir()
    left.write_bytes(b"half of a fi")
    with pytest.raises(DamageError, match=r"intent\.json"):
        forget_uncommitted(place.path, intents_of(lake), older=timedelta(0))
    new = replace(place, generation=2, path=lake.at(NAME, 2), id="2")
    shutil.copytree(place.path, new.path)
    lake.swap({NAME: new})
    assert note not in lake.notes()
    assert forget_uncommitted(new.path, intents_of(lake), older=timedelta(0)).files == 1


def test_tables_that_are_swapped_while_a_run_is_asked_are_maintained_by_their_own_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.create(NAME, COLUMNS, properties={})
    known, taken = lake.flow_folder(NAME), list[Path]()
    folders = [lake.flow_at(NAME, 9), known, known, known]  # the first is of what was live a moment ago
    monkeypatch.setattr(Lake, "flow_folder", lambda *_: folders.pop(0))
    project: Any = SimpleNamespace(
        conf=SimpleNamespace(lake=tmp_path), names=list, definition=lambda name: name
    )

    def lease(_: str, folder: Path) -> Any:
        taken.append(folder)
        return SimpleNamespace(release=list)

    monkeypatch.setattr(maintain, "Lease", lease)
    monkeypatch.setattr(maintain, "targets_of", lambda *_: [taken[-1]])
    assert maintain.maintain(project, [NAME]) == [known]


def test_a_file_is_written_anew_once_as_much_stands_behind_it(tmp_path: Path) -> None:
    """So each row is as often as its file can double, not as often as new ones come."""
    writer, written = Writer(tmp_path), 0
    for _ in range(64):
        writer.append(*[200] * 10)
        before = {*writer.target.files()}
        compact(writer.target, None)
        written += sum(file.rows for file in writer.target.data_files() if file.path not in before)
    assert written / writer.rows < 8  # 2**6 rounds: 7 times at most
    files = log.snapshot(writer.path, writer.target.version)
    assert len(files) < 8
    held = pa.concat_tables([pq.read_table(file.path, partitioning=None) for file in files])
    assert held["n"].to_pylist() == list(range(writer.rows))


def test_no_more_is_held_of_what_is_put_together_than_goes_into_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how many bytes rows have is asked of each piece of them once: that takes long of wide ones."""
    module: Any = sys.modules[compact.__module__]
    monkeypatch.setattr(module, "_GROUP", 1 << 20)
    writer = Writer(tmp_path)
    writer.append(200_000, *[1_000] * 250)
    files = writer.target.data_files()
    groups = list(module._groups([*files], COLUMNS))
    assert pa.concat_tables(groups)["n"].to_pylist() == list(range(writer.rows))
    assert max(group.nbytes for group in groups) < 1.5 * (1 << 20) and len(groups) > 8


def test_rows_of_files_that_others_hold_now_are_not_kept(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(10):
        writer.append(3)
    files = writer.target.files()
    for file in files:
        stored.whole(file)
    assert all(recent.KEPT.find(file) for file in files)
    compact(writer.target, None)
    assert not any(recent.KEPT.find(file) for file in files)
