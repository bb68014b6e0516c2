"""Ranges: bounded takes that give every file once, whatever the shape of the commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from raising import raises_code

from headwater.flows.parting import parting
from headwater.storage import log, ranges
from headwater.storage.places import PLACE
from headwater.storage.ranges import Position, Range

START = Position(generation=1)


def commit(
    table: Path, version: int, files: list[tuple[int, int]], *, removed: int = 0, newest: int = 0, at: int = 0
) -> None:
    """Write a commit that adds files of so many (rows, bytes)."""
    flows = {"f": {"newest": newest}} if newest else {}
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": at, "operation": "WRITE", "headwater": json.dumps(flows)}}
    ]
    for n, (rows, size) in enumerate(files):
        stats = json.dumps({"numRecords": rows})
        name = f"v{version}-{n}.parquet"
        actions.append({"add": {"path": name, "size": size, "dataChange": True, "stats": stats}})
    actions += [{"remove": {"path": f"r{n}", "dataChange": True}} for n in range(removed)]
    folder = table / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def names(found: Range) -> list[str]:
    return [Path(file).name for file in found.files]


def take(
    table: Path,
    start: Position,
    *,
    max_rows: int = 10**9,
    max_bytes: int = 10**12,
    upto: Position | None = None,
) -> Range | None:
    return ranges.take(table, "silver.t", start, max_rows=max_rows, max_bytes=max_bytes, upto=upto)


FILES = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 1000)), max_size=8)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.lists(FILES, max_size=7), st.integers(1, 250), st.integers(1, 2500), st.integers(0, 7))
def test_takes_give_every_file_once_in_order_and_within_the_bounds(
    commits: list[list[tuple[int, int]]], max_rows: int, max_bytes: int, before: int
) -> None:
    sizes = {f"v{v}-{n}.parquet": size for v, files in enumerate(commits) for n, size in enumerate(files)}
    with TemporaryDirectory() as folder:
        table, at, seen = Path(folder), START, []
        for version, files in enumerate(commits[:before]):
            commit(table, version, files)
        behind = list(enumerate(commits))[before:]
        while True:
            found = take(table, at, max_rows=max_rows, max_bytes=max_bytes)
            ahead = sum(rows for name, (rows, _) in sizes.items() if left(name, at, log.head(table)))
            assert ranges.lag(table, at) == ahead
            if found is None:
                if not behind:
                    break
                commit(table, *behind.pop(0))  # the writer goes on while the reader reads
                continue
            taken = [sizes[name] for name in names(found)]
            assert found.rows == sum(rows for rows, _ in taken)
            assert len(taken) <= 1 or (found.rows <= max_rows and sum(size for _, size in taken) <= max_bytes)
            assert found.upto != at and Position.parse(found.upto.json()) == found.upto
            seen += names(found)
            at = found.upto
        assert seen == list(sizes)
        assert at == Position(1, len(commits) - 1, 0)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.lists(FILES, max_size=6), st.integers(1, 250), st.integers(-1, 6), st.integers(0, 9))
def test_takes_end_exactly_at_a_bound(
    commits: list[list[tuple[int, int]]], max_rows: int, version: int, files: int
) -> None:
    bound = Position(1, version, files)
    with TemporaryDirectory() as folder:
        table, at, seen = Path(folder), START, []
        for number, each in enumerate(commits):
            commit(table, number, each)
        while (found := take(table, at, max_rows=max_rows, upto=bound)) is not None:
            assert found.upto != at and found.upto.reaches(at)
            seen += names(found)
            at = found.upto
        every = [f"v{v}-{n}.parquet" for v, files_ in enumerate(commits) for n in range(len(files_))]
        inside = [name for name in every if not left(name, bound, len(commits))]
        assert seen == inside
        rest = take(table, at)
        assert [*seen, *(names(rest) if rest else ())] == every


def left(name: str, at: Position, head: int) -> bool:
    """Whether the file is committed after the position."""
    version, n = map(int, name.removeprefix("v").removesuffix(".parquet").split("-"))
    return version <= head and (version, n) >= (at.version + 1, at.files)


def test_one_huge_commit_is_taken_in_parts(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(10, 1)] * 5, newest=7)
    commit(tmp_path, 1, [(10, 1)], newest=9)
    first = take(tmp_path, START, max_rows=20)
    assert first is not None and names(first) == ["v0-0.parquet", "v0-1.parquet"]
    assert first.upto == Position(1, -1, 2)
    second = take(tmp_path, first.upto, max_rows=20)
    assert second is not None and second.upto == Position(1, -1, 4)
    third = take(tmp_path, second.upto, max_rows=20)
    assert third is not None and names(third) == ["v0-4.parquet", "v1-0.parquet"]
    assert third.upto == Position(1, 1, 0) and third.newest == 9
    assert take(tmp_path, third.upto) is None


def test_a_position_says_which_commit_it_is_in(tmp_path: Path) -> None:
    read, other = tmp_path / "read", tmp_path / "other"
    for table, later in ((read, 0), (other, 100)):
        for version in range(3):
            commit(table, version, [(10, 1)] * 2, at=1000 + version + (later if version == 2 else 0))
    assert ranges.is_as_read(read, START)
    at = START
    for rows, newest, made in ((20, 0, 1000), (30, 2, 1002), (10, 2, 1002)):
        found = take(read, at, max_rows=rows)
        assert found is not None
        at = Position.parse(found.upto.json())
        assert (at.newest, at.committed) == (newest, made)
        assert ranges.is_as_read(read, at) and ranges.is_as_read(other, at) == (newest < 2)
        unnamed = Position(1, at.version, at.files)
        assert ranges.is_as_read(other, unnamed), "where it does not say which, there is none to compare with"
    within = take(read, START, upto=Position(1, 1, 1))
    assert within is not None and within.upto.committed == 1002
    (other / "_delta_log" / f"{2:020d}.json").unlink()
    assert not ranges.is_as_read(other, Position(1, 2)), "an older copy"


@settings(max_examples=150, deadline=None, print_blob=True)
@given(FILES, st.integers(1, 250), st.sets(st.integers(0, 8)))
def test_a_commit_is_parted_only_where_it_may_be(
    files: list[tuple[int, int]], max_rows: int, may: set[int]
) -> None:
    with TemporaryDirectory() as folder:
        commit(Path(folder), 0, [(20, 1)])
        commit(Path(folder), 1, files)
        at, seen, ends = START, list[str](), list[int]()
        while (
            found := ranges.take(
                Path(folder), "silver.t", at, max_rows=max_rows, max_bytes=10**9, parting=lambda _: may
            )
        ) is not None:
            at = found.upto
            seen += names(found)
            ends += [at.files] if at.files else []
            starts = [n for name in names(found) if name[1] == "1" and (n := int(name[3])) in may]
            assert found.rows <= max_rows or len(starts) <= 1, "no more than can't be parted"
        assert seen == ["v0-0.parquet", *(f"v1-{n}.parquet" for n in range(len(files)))]
        assert set(ends) <= may


@settings(max_examples=30, deadline=None, print_blob=True)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=4), min_size=1, max_size=6),
    st.booleans(),
)
def test_records_of_a_partition_are_parted_in_their_order(
    files: list[list[tuple[int, int]]], derived: bool
) -> None:
    places = [[dict(zip(PLACE, ("c", "t", p, at), strict=True)) for p, at in file] for file in files]
    columns = StructType()
    with TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{n}.parquet") for n in range(len(files))]
        for path, rows in zip(paths, places, strict=True):
            found = pa.Table.from_pylist(rows, pa.schema(list(PLACE.items())))
            if derived:
                found = pa.table({"_source": found.to_struct_array()})
            pq.write_table(found, path)
        for name in ("_source",) if derived else PLACE:
            columns = columns.add(name, "string")  # by its names alone
        may = {n for n in parting(columns)(paths) if n}
    for n in range(1, len(files)):
        before, after = ([at for file in part for at in file] for part in (files[:n], files[n:]))
        assert (n in may) == all(one < other for p, one in before for q, other in after if p == q)


def test_one_file_is_taken_whatever_its_size(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(1000, 1000), (1, 1)])
    found = take(tmp_path, START, max_rows=1, max_bytes=1)
    assert found is not None and names(found) == ["v0-0.parquet"] and found.rows == 1000


def test_a_commit_without_files_is_passed_after_one_that_is_too_large(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def parting(files: Sequence[str]) -> set[int]:
        asked.append([Path(file).name for file in files])
        return set()

    commit(tmp_path, 0, [(1000, 1)])
    commit(tmp_path, 1, [])
    commit(tmp_path, 2, [(1, 1)])
    found = ranges.take(tmp_path, "silver.t", START, max_rows=10, max_bytes=10**9, parting=parting)
    assert found is not None and names(found) == ["v0-0.parquet"] and found.upto.newest == 1
    assert asked == [["v0-0.parquet"], ["v2-0.parquet"]], "files are looked into, so there have to be some"


def test_bytes_bound_a_take(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(1, 60), (1, 60), (1, 60)])
    found = take(tmp_path, START, max_bytes=120)
    assert found is not None and len(found.files) == 2


def test_commits_that_add_nothing_are_passed(tmp_path: Path) -> None:
    assert take(tmp_path, START) is None
    commit(tmp_path, 0, [])
    commit(tmp_path, 1, [])
    found = take(tmp_path, START)
    assert found is not None and found.files == () and found.upto == Position(1, 1, 0)
    assert take(tmp_path, found.upto) is None


def test_a_commit_that_takes_rows_away_stops_the_flow(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(1, 1)])
    commit(tmp_path, 1, [(1, 1)], removed=2)
    with raises_code(
        "ROWS_TAKEN_AWAY", table="silver.t", match=r"silver\.t: version 1 \(WRITE\) took rows away .* rebuild"
    ) as refused:
        take(tmp_path, Position(1, 0, 0))
    assert str(tmp_path) in str(refused.value)


def test_what_stands_before_a_removing_commit_can_still_be_taken(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(10, 1), (10, 1)])
    commit(tmp_path, 1, [], removed=1)
    found = take(tmp_path, START, max_rows=10)
    assert found is not None and names(found) == ["v0-0.parquet"]


def test_a_cleaned_log_is_refused(tmp_path: Path) -> None:
    for version in range(3):
        commit(tmp_path, version, [(1, 1)])
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with raises_code("LOG_SHORTENED", match="version 1 is gone from the log"):
        take(tmp_path, Position(1, 0, 0))
    found = take(tmp_path, Position(1, 1, 0))
    assert found is not None and names(found) == ["v2-0.parquet"]


def test_rows_that_no_one_counted_are_no_rows(tmp_path: Path) -> None:
    commit(tmp_path, 0, [(-1, 5), (-1, 5)])
    found = take(tmp_path, START, max_rows=1)
    assert found is not None and len(found.files) == 2 and found.rows == ranges.lag(tmp_path, START) == 0
