"""A byte that a disk has changed is found, wherever it is, and nothing is made of it."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import call
from pyspark.sql import SparkSession
from raising import raises_code
from visits import VISITS, Visits

from headwater.operations import maintain, savepoints
from headwater.operations.maintain.clean import clean
from headwater.operations.maintain.compact import compact
from headwater.operations.savepoints.cut import Chosen, lakes, tables
from headwater.operations.verify import verify
from headwater.storage import checksums, damage, delta, json_file, log, stored
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.testing.files import write

TIME = pa.timestamp("us", "UTC")
RAW = pa.schema(
    [("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", TIME)]
)
COUNTS = pa.schema([("user", pa.string()), ("since", TIME), ("n", pa.int64())])
MERGED = {"n": "t.n + s.n", "user": "t.user", "since": "t.since"}
WAY = "nothing else has its rows: put it back from a copy whose files are its own (headwater copy --full)"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Made:
    """A lake as flows leave it, without them: tables that grow and that change, and what lies beside them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.lake, self.draw, self._sent = Lake(root), random.Random(seed), 0
        feed = {"delta.enableChangeDataFeed": "true"}
        self.bronze, self.silver, self.rejected = (
            Target.shared(self.lake.create(name, RAW, properties={}))
            for name in ("bronze.raw", "silver.visits", "quarantine.silver_visits")
        )
        self.gold = Target.shared(self.lake.create("gold.counts", COUNTS, properties=feed))

    def write(self, times: int) -> None:
        for _ in range(times):
            rows = self._rows(self.draw.randrange(5, 40))
            for target in (self.bronze, self.silver, *([self.rejected] if self.draw.random() < 0.3 else [])):
                identity = self._identity(target)
                target.append(target.write(rows, f"{identity.sequence:012d}"), identity)
            users = self.draw.sample("abcdef", 3)
            since = [EPOCH + timedelta(minutes=self.draw.randrange(4))] * 3
            self.gold.merge(
                pa.table([users, since, [1] * 3], schema=COUNTS),
                ("user", "since"),
                MERGED,
                self._identity(self.gold),
            )

    def _rows(self, count: int) -> pa.Table:
        offsets = range(self._sent, self._sent + count)
        self._sent += count
        values = [self.draw.randbytes(self.draw.randrange(20)) for _ in offsets]
        times = [EPOCH + timedelta(seconds=at) for at in offsets]
        return pa.table([values, [0] * count, offsets, times], schema=RAW)

    def _identity(self, target: Target) -> Identity:
        name = target.place.name
        return Identity(name, 1, target.last(name) + 1, {"raw": {"0": self._sent}})

    def keep(self) -> None:
        """What lies beside tables: notes, and a savepoint."""
        for name in ("silver.visits", "gold.counts"):
            folder = self.lake.flow_folder(name)
            IntentFile(folder).write(Intent(name, 1, 3, {"bronze.raw": {"version": 3}}, clock="2026-01-01"))
            json_file.write(
                folder / "definition.json", {"facts": {"kind": "table"}, "by": "", "project": "y"}
            )
        folder = self.lake.flow_folder("sink.out")
        folder.mkdir(parents=True)
        json_file.write(folder / "position.json", {"generation": 1, "version": 4})
        saved, place = self.lake.root / "_savepoints" / "before", self.gold.place
        lakes.make(
            {place.name: Chosen(place, log.read(place.path, self.gold.version))}, self.lake, Lake(saved)
        )
        json_file.write(saved / "savepoint.json", {"name": "before"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("whole") / "lake", seed := random.randrange(2**32))
    print(f"seed {seed}")
    made.write(12)
    compact(made.bronze, None)
    for target in (made.bronze, made.gold):
        target.checkpoint(1)
    made.keep()
    made.write(4)
    return made


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    """A lake of the same kind whose files a test may change."""
    made = Made(tmp_path / "lake", 5)
    made.write(3)
    return made


def damages(lake: Lake, *tables: str) -> dict[str, Any]:
    """{file → what is said of it}."""
    return {str(each.file): each for one in verify(lake, tables) for each in one.damages}


def test_a_whole_lake_is_whole_and_counted(whole: Made) -> None:
    found = {one.table: one for one in verify(whole.lake)}
    assert not damages(whole.lake)
    assert all(one.unknown == 0 for one in found.values()), found
    rows = {target.place.name: len(target.held(target.columns)) for target in (whole.bronze, whole.gold)}
    assert {name: found[name].rows for name in rows} == rows
    assert found.keys() >= {"_catalog", "_notes", "before: gold.counts", "before: _notes"}
    files = {str(path) for path in kinds(whole.lake.root)["data"]}
    assert sum(one.files for one in found.values()) >= len(files)


def kinds(root: Path) -> dict[str, list[Path]]:
    """All files of a lake by their kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        parts = path.relative_to(root).parts
        if "_delta_log" not in parts:
            kind = "data" if path.suffix == ".parquet" else "note"
        elif path.name.endswith(".parquet") or path.name == "_last_checkpoint":
            kind = "checkpoint"
        else:
            kind = "entry" if len(path.name) == 25 else "checksums"
        if path.suffix != ".lock" and not path.name.startswith(("lease", "turn", "gate")):  # those are locks
            found.setdefault(f"{'savepoint ' if '_savepoints' in parts else ''}{kind}", []).append(path)
    return found


def flips(root: Path, draw: random.Random, count: int) -> Iterator[tuple[Path, int]]:
    """Change a byte of a file, and back; the files of all kinds, in turns."""
    files = kinds(root)
    assert len(files) == 10, sorted(files)
    for turn in range(count):
        file = draw.choice(files[sorted(files)[turn % len(files)]])
        content = bytearray(file.read_bytes())
        at, other = draw.randrange(len(content)), draw.randrange(1, 256)
        content[at] ^= other
        with file.open("r+b") as opened:  # in place: links see it, too
            opened.write(content)
        yield file, at
        content[at] ^= other
        with file.open("r+b") as opened:
            opened.write(content)


@pytest.mark.parametrize("count", [90, pytest.param(1000, marks=pytest.mark.torture)])
def test_every_flipped_byte_is_named_and_nothing_else_is(whole: Made, count: int) -> None:
    print(f"seed {(seed := random.randrange(2**32))}")
    for file, at in flips(whole.lake.root, random.Random(seed), count):
        found = damages(whole.lake)
        assert found and all(os.path.samefile(file, name) for name in found), (file, at, found)
    assert not damages(whole.lake)


@pytest.mark.torture
def test_every_flipped_byte_of_what_flows_wrote_is_named(tmp_path: Path, interpreted: SparkSession) -> None:
    print(f"seed {(seed := random.randrange(2**32))}")
    draw, case = random.Random(seed), Visits(tmp_path / "project", interpreted)
    for turn in range(8):
        case.visit(draw)
        case.drain()
        if turn == 4:
            maintain.maintain(case.definitions)
            for place in case.lake.places().values():
                checksums.checkpoint(place.path)
            savepoints.create(case.definitions, "before")
    assert not damages(case.lake)
    for file, at in flips(case.lake.root, draw, 1000):
        found = damages(case.lake)
        assert found and all(os.path.samefile(file, name) for name in found), (file, at, found)


def test_a_rebuild_is_the_way_back(tmp_path: Path, interpreted: SparkSession) -> None:
    print(f"seed {(seed := random.randrange(2**32))}")
    draw, case = random.Random(seed), Visits(tmp_path / "project", interpreted)
    for _ in range(2):
        case.visit(draw)
        case.drain()
    file, rows = oldest(Target(case.lake.place(VISITS))), case.rows(VISITS)
    flip(file)
    assert damages(case.lake).keys() == {str(file)}
    case.rebuild(VISITS)
    assert not damages(case.lake) and sorted(case.rows(VISITS)) == sorted(rows)


def flip(file: Path, at: int = -1) -> None:
    """Change a byte of a file; by default one in the middle."""
    content = bytearray(file.read_bytes())
    content[at if at >= 0 else len(content) // 2] ^= 0x10
    file.write_bytes(content)


def oldest(target: Target) -> Path:
    return Path(log.snapshot(target.place.path, target.version)[0].path)


def test_what_is_damaged_says_whose_it_is_and_the_way_back(made: Made) -> None:
    made.rejected.append(made.rejected.write(made._rows(3), "x"), made._identity(made.rejected))
    targets = (made.bronze, made.silver, made.gold, made.rejected)
    for target in targets:
        flip(oldest(target))
    found = damages(made.lake)
    assert len(found) == len(targets)
    one = found[str(oldest(made.bronze))]
    held = log.snapshot(made.bronze.place.path, made.bronze.version)[0].rows
    assert (one.version, one.rows) == (1, held) and "a copy" in one.way and "rebuild" not in one.way
    assert f"partition 0, offset 0 to {held - 1}, timestamp 2026-01-01T00:00:00.000Z to " in one.range
    owners = ("silver.visits", "gold.counts", "silver.visits")
    for target, owner in zip(targets[1:], owners, strict=True):
        assert found[str(oldest(target))].way == f"headwater rebuild {owner}"
    assert damages(made.lake, "gold.counts").keys() == {str(oldest(made.gold))}
    with raises_code("UNKNOWN_TABLE", match="unknown table 'gold.x'; known: bronze.raw, gold.counts"):
        list(verify(made.lake, ["gold.x"]))


def test_what_is_damaged_is_not_written_anew(made: Made) -> None:
    made.write(9)
    file, before = oldest(made.bronze), made.bronze.version
    flip(file)
    with raises_code("FILE_DAMAGED", table="bronze.raw", file=file, match="headwater verify bronze.raw"):
        compact(made.bronze, None)
    assert made.bronze.version == before and not damages(made.lake).keys() - {str(file)}

    file = oldest(made.gold)
    held = pq.read_table(file).to_pylist()[0]
    flip(file)
    with raises_code("FILE_DAMAGED", table="gold.counts", file=file):
        merge(made.gold, (held["since"] - EPOCH) // timedelta(minutes=1), held["user"])
    assert file.exists() and damages(made.lake, "gold.counts").keys() == {str(file)}


def merge(target: Target, minute: int, user: str = "z") -> None:
    rows = pa.table([[user], [EPOCH + timedelta(minutes=minute)], [1]], schema=COUNTS)
    name = target.place.name
    target.merge(rows, ("user", "since"), MERGED, Identity(name, 1, target.last(name) + 1, {}))


def test_a_merge_looks_at_what_it_may_write_anew_and_at_no_more(tmp_path: Path) -> None:
    target = Target(Lake(tmp_path).create("gold.counts", COUNTS, properties={}))
    for minute in range(3):
        merge(target, minute)
    file = oldest(target)
    flip(file)
    merge(target, 2)
    with raises_code("FILE_DAMAGED", file=file):
        merge(target, 0)
    file.unlink()
    with raises_code("FILE_DAMAGED", file=file, match="is gone; headwater verify gold.counts"):
        merge(target, 0)


def test_a_file_is_not_read_that_was_not_so_written(made: Made) -> None:
    for target, at in ((made.bronze, 20), (made.silver, -1)):  # in a page, and in what comes after them
        file = oldest(target)
        flip(file, at if at >= 0 else file.stat().st_size - 6)
        with raises_code("FILE_DAMAGED", table=target.place.name, file=file):
            target.held(target.columns)
        with raises_code("FILE_DAMAGED", table=target.place.name, file=file):
            stored.rows(target.files(), target.columns)
    with pytest.raises(FileNotFoundError):
        stored.read(str(made.lake.root / "none.parquet"), RAW)


def test_what_a_kill_left_without_a_note_gets_it_with_the_next_commit(made: Made) -> None:
    for _ in range(2):
        merge(made.gold, 9)
    (made.gold.place.path / "_delta_log" / checksums.NEWEST).unlink()
    (found,) = verify(made.lake, ["gold.counts"])
    assert not found.damages and found.unknown == 3  # the newest entry, and the two files of its merge
    made = Made(made.lake.root, 7)  # another process
    merge(made.gold, 9)
    (found,) = verify(made.lake, ["gold.counts"])
    assert not found.damages and found.unknown == 0


def test_files_of_before_there_were_checksums_are_read_as_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "note", lambda *_: None)
        patched.setattr(checksums, "next_says", lambda *_: "{}")
        patched.setattr(checksums, "ensure", lambda *_: None)
        made = Made(tmp_path / "lake", 3)
        made.write(4)
        made.bronze.checkpoint(1)
        clean(made.bronze.place.path, upto=made.bronze.version, before=datetime.now(UTC) + timedelta(days=1))
        assert log.first(made.bronze.place.path) > 0
    found = {one.table: one for one in verify(made.lake)}
    assert not damages(made.lake) and found["bronze.raw"].unknown == found["bronze.raw"].files
    assert found["bronze.raw"].rows == len(made.bronze.held(RAW))
    flip(oldest(made.bronze), 20)
    flip(log_entry(made.silver), 0)
    assert damages(made.lake).keys() == {str(oldest(made.bronze)), str(log_entry(made.silver))}
    flip(oldest(made.bronze), 20)
    made.write(2)  # from here on there are
    assert {one.table: one for one in verify(made.lake)}[
        "bronze.raw"
    ].unknown == 4  # the newest commit is noted
    made.bronze.check(made.bronze.files())


def log_entry(target: Target) -> Path:
    return delta.entry(target.place.path, 1)


def test_checksums_outlive_the_commits_that_told_them(made: Made) -> None:
    table = made.gold.place.path
    for minute in (50, 51, 52):
        merge(made.gold, minute)
    made.gold.checkpoint(1)
    merge(made.gold, 52)
    clean(table, upto=made.gold.version, before=datetime.now(UTC) + timedelta(days=1))
    assert log.first(table) == made.gold.version - 1
    (found,) = verify(made.lake, ["gold.counts"])
    assert not found.damages and found.unknown == 0 and found.rows == len(made.gold.held(COUNTS))
    for path in made.gold.files():
        flip(Path(path))
        assert damages(made.lake, "gold.counts").keys() == {path}
        flip(Path(path))


def test_a_run_may_go_on_while_a_lake_is_read(made: Made) -> None:
    done = threading.Event()

    def write() -> None:
        try:
            for _ in range(8):
                made.write(3)
                for target in (made.bronze, made.gold):
                    compact(target, None if target is made.bronze else ["since"], settled=0.0)
                    target.checkpoint(1)
                    later = datetime.now(UTC) + timedelta(days=1)
                    clean(target.place.path, upto=target.version, before=later)
        finally:
            done.set()

    writer, turns = threading.Thread(target=write), 0
    writer.start()
    while not done.is_set():
        assert not damages(made.lake)
        turns += 1
    writer.join()
    assert turns > 3 and not damages(made.lake)
    assert all(one.unknown == 0 for one in verify(made.lake))


def test_a_broken_table_is_one_row(made: Made) -> None:
    shutil.rmtree(made.silver.place.path)
    log_entry(made.bronze).unlink()
    Path(made.gold.files()[0]).unlink()
    found = {one.table: [str(each) for each in one.damages] for one in verify(made.lake)}
    assert len(found["silver.visits"]) == 1 and "headwater rebuild silver.visits" in found["silver.visits"][0]
    assert found["bronze.raw"] == [f"{log_entry(made.bronze)} is gone (of version 1); {WAY}"]
    assert len(found["gold.counts"]) == 1 and "is gone" in found["gold.counts"][0]
    assert not found["quarantine.silver_visits"]


def test_a_damaged_commit_is_not_copied(made: Made, tmp_path: Path) -> None:
    path, into = made.gold.place.path, tmp_path / "copy"
    tables.take(path, made.gold.version, into, flows={"x": {}})
    assert not damage.read(into).damages and damage.read(into).unknown == 0
    entry = delta.entry(path, made.gold.version)
    flip(entry, entry.read_bytes().index(b"gold.counts") + 2)  # in a string: it is JSON still
    with raises_code("LOG_DAMAGED", table="gold.counts", file=entry):
        tables.take(path, made.gold.version, tmp_path / "other")


def test_the_command_says_what_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, {"conf/local.yaml": "kafka: embedded\n", "bronze/raw.py": ""})
    assert call(["verify"], tmp_path).returncode == 0
    made = Made(tmp_path / ".headwater" / "lake", 11)
    made.write(3)
    done = call(["verify"], tmp_path)
    assert done.returncode == 0 and "gold.counts" in done.stdout
    flip(file := oldest(made.silver))
    done = call(["verify", "silver.visits"], tmp_path)
    assert done.returncode == 1 and f"{file} is not what was written" in done.stdout
    assert (
        "rows, of version 1, partition 0, offset 0 to" in done.stdout
        and "headwater rebuild silver.visits" in done.stdout
    )
    done = call(["verify", "--json"], tmp_path)
    assert done.returncode == 1
    found = {one["table"]: one["damages"] for one in json.loads(done.stdout)}
    assert [one["file"] for one in found["silver.visits"]] == [str(file)]
    flip(file)
    flip(file, file.stat().st_size - 6)
    asked = call(["query", "SELECT count(value) FROM silver.visits"], tmp_path)
    assert (
        asked.returncode == 1
        and "headwater verify silver.visits" in asked.stderr
        and str(file) in asked.stderr
    )
