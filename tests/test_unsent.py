"""What goes to a sink goes in pieces: how much is in memory does not follow from how large a table is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors.sinks import CHANGE, Changes, Pieces, Position
from headwater.flows import unsent
from headwater.storage import feed, log
from headwater.storage.delta import files
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import GONE, Target

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
KINDS = ("whole", "a commit of new rows", "a commit of changes", "another generation")


def rows(begin: int, count: int, letter: str = "x") -> pa.Table:
    return pa.table([range(begin, begin + count), [letter * 100] * count], schema=COLUMNS)


def table(folder: Path, count: int, letter: str = "x", each: int = 0) -> Target:
    """A table of so many rows, in files of so many."""
    properties = {"delta.enableChangeDataFeed": "true"}
    target, each = Target(Lake(folder).create("gold.t", COLUMNS, properties=properties)), each or count
    written = [path for at in range(0, count, each) for path in target.put([rows(at, each, letter)], "t")]
    target.append(written, Identity("gold.t", 1, 0, {}))
    return target


def pieces(kind: str, folder: Path, count: int, held: ExitStack) -> Pieces:
    one = table(folder / "one", count)
    place = one.place.path
    if kind == "whole":
        return unsent.whole(files(place), COLUMNS)
    if kind == "a commit of new rows":
        return unsent.of_commit(log.read(place, 1), place, COLUMNS)
    if kind == "a commit of changes":
        changes = rows(0, count, "y").append_column(GONE, pa.array([n % 10 == 0 for n in range(count)]))
        one.change(changes, ["id"], Identity("gold.t", 1, 1, {}))
        return unsent.of_commit(log.read(place, one.version), place, COLUMNS)
    other = table(folder / "other", count, "y")
    return unsent.difference(files(place), files(other.place.path), COLUMNS, ["id"], held)


def peak(found: Pieces) -> tuple[int, int]:
    """The bytes of Arrow that stand in memory at most while the pieces are read, and their rows."""
    base, most, count = pa.total_allocated_bytes(), 0, 0
    for _, piece in Changes([(Position(1, 1), found)]).batches():
        count += len(piece)
        most = max(most, pa.total_allocated_bytes() - base)
    return most, count


@pytest.mark.parametrize("kind", KINDS)
def test_four_times_the_rows_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(feed, "PIECE", 5_000)
    some: list[int] = []
    for count in (30_000, 120_000):
        with ExitStack() as held:
            found = pieces(kind, tmp_path / str(count), count, held)
            assert len(found) == count
            most, read = peak(found)
        assert read == count
        some.append(most)
    print(kind, some)
    assert some[1] < 1.5 * some[0] + 2_500_000, some  # pages and dictionaries of a file, of 1 MB each


def told(found: Pieces) -> Counter[Any]:
    return Counter(tuple(row.values()) for piece in found.read() for row in piece.to_pylist())


@pytest.mark.parametrize("keys", [("id",), ()])
def test_what_differs_is_all_that_has_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(feed, "PIECE", 7)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    sides = []
    for name in ("old", "new"):
        ids = draw.sample(range(60), 40) if keys else [draw.randrange(10) for _ in range(40)]
        values = [(id, draw.choice(["x", "y", None])) for id in ids]
        target = Target(Lake(tmp_path / name).create("gold.t", COLUMNS, properties={}))
        for at in range(0, 40, 10):
            part = pa.Table.from_pylist(
                [{"id": id, "text": text} for id, text in values[at : at + 10]], COLUMNS
            )
            target.append(target.put([part], "t"), Identity("gold.t", 1, at, {}))
        sides.append((Counter(values), files(target.place.path)))
    (old, old_files), (new, new_files) = sides
    want = Counter({(*row, "upsert"): n for row, n in (new - old).items()})
    if keys:
        want += Counter({(*row, "delete"): 1 for row in old if row[0] not in {id for id, _ in new}})
    with ExitStack() as held:
        found = unsent.difference(old_files, new_files, COLUMNS, keys, held)
        assert told(found) == told(found) == want and len(found) == want.total()
    with ExitStack() as held:
        assert told(unsent.difference([], new_files, COLUMNS, keys, held)) == Counter(
            {(*row, "upsert"): n for row, n in new.items()}
        )
    assert told(unsent.whole(new_files, COLUMNS)) == Counter({(*row, "upsert"): n for row, n in new.items()})


def test_pieces_are_read_again_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PIECE", 30)
    place = table(tmp_path, 200, each=50).place.path
    reading: list[Callable[[], Pieces]] = [
        lambda: unsent.whole(files(place), COLUMNS),
        lambda: unsent.of_commit(log.read(place, 1), place, COLUMNS),
    ]
    for read in reading:
        found = read()
        order = [[row["id"] for piece in found.read() for row in piece.to_pylist()] for _ in range(2)]
        assert order[0] == order[1] and sorted(order[0]) == list(range(200))
        assert max(map(len, found.read())) <= 30
        assert next(found.read()).schema.names == [*COLUMNS.names, CHANGE]
