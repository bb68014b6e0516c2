"""Files that can't hold a batch's keys are not read, and none that can is left out."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import log, pruning
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

KINDS = {
    "i": pa.int64(),
    "small": pa.int32(),
    "s": pa.string(),
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "x": pa.float64(),
    "d": pa.decimal128(12, 3),
    "b": pa.binary(),
    "ok": pa.bool_(),
}
LONG = "é" * 40
TEXTS = st.one_of(
    st.text(string.printable, max_size=3),
    st.text(max_size=100),
    st.sampled_from(
        [LONG, LONG + "a", LONG + "\U0010ffff" * 70, "\U0010ffff" * 70, "z" * 64, "z" * 65, "'", "\\", "%"]
    ),
)
AT = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1]),
    "small": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    "s": TEXTS,
    "day": st.dates() | st.dates(date(2026, 1, 1), date(2026, 1, 4)),
    "ts": st.integers(-3000, 3000).map(lambda micros: AT + timedelta(microseconds=micros))
    | st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]),
    "x": st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, 1.5]),
    "d": st.decimals(-99, 99, places=3),
    "b": st.binary(max_size=3),
    "ok": st.booleans(),
}


def columns(*keys: str) -> pa.Schema:
    return pa.schema([*((key, KINDS[key]) for key in keys), ("n", pa.int64())])


def table(folder: Path, *keys: str) -> Target:
    return Target(Lake(folder).create("gold.t", columns(*keys), properties={}))


def counted(*keys: str) -> Aggregate:
    return Aggregate((*(Output(key, "key") for key in keys), Output("n", "count")))


def like(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """As SQL compares them: NaN is NaN, and zero has no sign."""
    return tuple(map(_like, values))


def _like(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return "NaN" if value != value else value + 0 if isinstance(value, float) else value


@st.composite
def batches(draw: st.DrawFn) -> tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]:
    """One key or two, and the keys of some batches, which come again."""
    keys = tuple(draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2, unique=True)))
    rows = st.tuples(*(st.none() | VALUES[key] for key in keys))
    known = draw(st.lists(rows, min_size=1, max_size=12, unique_by=lambda row: repr(like(row))))
    chosen = st.lists(st.sampled_from(known), min_size=1, max_size=4, unique_by=lambda row: repr(like(row)))
    return keys, draw(st.lists(chosen, min_size=1, max_size=6))


@settings(max_examples=40, deadline=None, print_blob=True)
@given(case=batches())
def test_what_is_read_is_all_that_a_full_scan_finds(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]
) -> None:
    """Files of merges, and of ours (each second batch); rows of merges that delta-rs finds by the bounds."""
    keys, parts = case
    target = table(tmp_path_factory.mktemp("lake"), *keys)
    for number, part in enumerate(parts):
        rows = pa.Table.from_pylist([dict(zip(keys, key, strict=True), n=1) for key in part], columns(*keys))
        wanted = pruning.reaches(rows, keys)
        read, every = target.held(columns(*keys), wanted), target.held(columns(*keys))
        mine = {repr(like(key)) for key in part}

        def found(held: pa.Table, mine: set[str] = mine) -> Counter[str]:
            told = (repr(like(tuple(row[key] for key in keys))) for row in held.to_pylist())
            return Counter(each for each in told if each in mine)

        assert found(read) == found(every)
        identity = Identity("gold.t", 1, number, {})
        if number % 2:
            target.append(target.put([rows], "ours"), identity)
        elif max(found(every).values(), default=1) == 1 and not {"x", "d", "b", "ok"} & {*keys}:
            target.merge(rows, keys, counted(*keys).merged(rows.schema), identity)
            assert set(found(target.held(columns(*keys))).values()) == {1}


MANY = 40  # files
KEYS: dict[str, Callable[[int], Any]] = {
    "i": lambda n: n - 2_000,
    "s": lambda n: f"key-{n:06d}",
    "day": lambda n: date(1970, 1, 1) + timedelta(days=n - 2_000),
    "ts": lambda n: AT + timedelta(seconds=n),
}


@pytest.fixture(params=KEYS)
def ordered(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Target, str]:
    """A table of 4,000 rows in 40 files, in the order of its key."""
    key: str = request.param
    target = table(tmp_path, key)
    files = []
    for at in range(0, 100 * MANY, 100):
        rows = [{key: KEYS[key](n), "n": 1} for n in range(at, at + 100)]
        files += target.put([pa.Table.from_pylist(rows, columns(key))], "file")
    target.append(files, Identity("gold.t", 1, 0, {}))
    return target, key


def some(key: str, *numbers: int | None) -> pa.Table:
    rows = [{key: None if n is None else KEYS[key](n), "n": 1} for n in numbers]
    return pa.Table.from_pylist(rows, columns(key))


def test_few_files_are_read_for_a_few_keys(ordered: tuple[Target, str]) -> None:
    target, key = ordered
    assert len(target.near(pruning.reaches(some(key, 5, 2_050, 3_999, None), [key]))) == 3
    assert len(target.near(pruning.reaches(some(key, 5_000), [key]))) == 0
    far = [each for pair in zip(range(0, 1_000, 20), range(3_000, 4_000, 20), strict=True) for each in pair]
    assert len(target.near(pruning.reaches(some(key, *far), [key]))) == 20
    assert len(target.near({})) == MANY


def test_a_merge_writes_few_files_anew(ordered: tuple[Target, str]) -> None:
    """Three keys, one at either end: three files of forty; the others are not looked at."""
    target, key = ordered
    rows = some(key, 5, 2_050, 3_999, None)
    version = target.merge(rows, (key,), counted(key).merged(rows.schema), Identity("gold.t", 1, 1, {}))
    commit = log.read(target.place.path, version)
    assert commit.removed == 3
    assert int(commit.metrics["num_target_files_skipped_during_scan"]) >= MANY - 3
    held = target.held(columns(key))
    assert len(held) == 4_001 and sum(held["n"].to_pylist()) == 4_004


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]),
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(),
        pa.bool_(),
        pa.float64(),
        pa.decimal128(38, 10),
        pa.timestamp("ns"),
    ],
    ids=str,
)
def test_keys_without_bounds_leave_no_file_out(kind: pa.DataType) -> None:
    rows = pa.table([pa.nulls(2, kind), pa.array([1, 2])], names=["k", "n"])
    assert pruning.reaches(rows, ["k", "n"]).keys() == {"n"}
    assert not any('"k"' in condition for condition in pruning.conditions(rows, ["k", "n"]))
