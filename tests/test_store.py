"""The store of files: what it promises to those who write logs, notes and locks through it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from raising import raises_code

from headwater.storage import log, store
from headwater.storage.lake import Lake

COLUMNS = pa.schema([("n", pa.int64())])


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    there, file = store.of(tmp_path), tmp_path / "a.json"
    there.put_new(file, b"first")
    with pytest.raises(FileExistsError):
        there.put_new(file, b"second")
    assert there.get(file) == b"first" and os.listdir(tmp_path) == ["a.json"]
    there.put(file, b"third")
    assert there.get(file) == b"third" and there.entry(file).size == 5


def test_what_is_put_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, file = store.of(tmp_path), tmp_path / "a.json"
    there.put(file, b"before")
    seen = []
    replace = os.replace

    def look(half: Path, path: Path) -> None:
        seen.append((path.read_bytes(), half.read_bytes()))
        replace(half, path)

    monkeypatch.setattr(os, "replace", look)
    there.put(file, b"after")
    assert seen == [(b"before", b"after")] and file.read_bytes() == b"after"


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, write = store.of(tmp_path), Path.write_bytes
    there.put(tmp_path / "a.json", b"before")

    def half(path: Path, content: bytes) -> int:
        write(path, content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    for put in (there.put, there.put_new):
        with pytest.raises(OSError, match="No space"):
            put(tmp_path / "a.json", b"after")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"before")]


def test_two_may_put_the_same_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, file = store.of(tmp_path), tmp_path / "a.json"
    replace = os.replace

    def meet(half: Path, path: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        there.put(file, b"another's")
        replace(half, path)

    monkeypatch.setattr(os, "replace", meet)
    there.put(file, b"mine")
    assert file.read_bytes() == b"mine" and os.listdir(tmp_path) == ["a.json"]


def test_what_is_not_there(tmp_path: Path) -> None:
    there, file = store.of(tmp_path), tmp_path / "none" / "a"
    for look in (there.get, there.entry):
        with pytest.raises(FileNotFoundError):
            look(file)
    with pytest.raises(FileNotFoundError):
        there.rename(file, tmp_path / "b")
    assert not there.exists(file) and there.names(file.parent) == []
    assert there.find(file.parent, "*") == there.below(file.parent, "") == []
    there.delete(file)
    there.delete_all(file.parent)
    there.drop_empty(file.parent)


def test_what_is_below_a_folder(tmp_path: Path) -> None:
    there = store.of(tmp_path)
    there.make(tmp_path / "x" / "y")
    for name in ("x/a.parquet", "x/y/b.parquet", "x/y/c.json"):
        there.put(tmp_path / name, b"")
    assert sorted(there.below(tmp_path, ".parquet")) == [
        tmp_path / "x/a.parquet",
        tmp_path / "x/y/b.parquet",
    ]
    assert there.find(tmp_path, "*/*.parquet") == [tmp_path / "x/a.parquet"]
    there.drop_empty(tmp_path / "x")
    there.rename(tmp_path / "x", tmp_path / "z")
    assert sorted(there.names(tmp_path / "z")) == ["a.parquet", "y"]
    there.delete_all(tmp_path / "z")
    assert there.names(tmp_path) == []


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    there, path = store.of(tmp_path), tmp_path / "flows" / "lease"
    with there.lock(path) as mine:
        assert mine.take()
        mine.note(b"a long note")
        mine.note(b"mine")
        assert path.read_bytes() == b"mine"
        with there.lock(path) as other:
            assert not other.take() and not other.take(within=0.02)
    with there.lock(path) as other:
        assert other.take()


def test_whoever_looks_whether_a_lock_is_taken_needs_no_right_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, path = store.of(tmp_path), tmp_path / "flows" / "lease"
    assert not there.is_locked(path) and not path.parent.exists()
    with there.lock(path) as mine:
        assert not there.is_locked(path)
        assert mine.take()
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", partial(_opened_to_read, os.open))
            assert there.is_locked(path)
    assert not there.is_locked(path)


def _opened_to_read(opened: Callable[..., int], path: Path, flags: int, *rest: int) -> int:
    assert flags == os.O_RDONLY
    return opened(path, flags, *rest)


def test_a_lock_whose_file_is_removed_while_it_is_waited_for_is_not_held_by_two(tmp_path: Path) -> None:
    there, path = store.of(tmp_path), tmp_path / "flows" / "lease"
    mine, waits = there.lock(path), there.lock(path)
    assert mine.take()
    there.delete_all(path.parent)  # as it is dropped
    mine.release()
    assert waits.take()
    with there.lock(path) as comes:
        assert not comes.take()
    waits.release()


def test_an_entry_of_a_log_is_never_written_over_another(tmp_path: Path) -> None:
    place = Lake(tmp_path).create("bronze.r", COLUMNS, properties={})
    before = log.read(place.path, 0)
    with raises_code("WRITTEN_BY_OTHERS", file=place.path / "_delta_log" / f"{0:020d}.json"):
        log.write(place.path, 0, [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}])
    assert log.read(place.path, 0) == before
