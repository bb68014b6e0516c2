"""Random projects, and those that once went wrong, are what Spark and DuckDB make of the same records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from fuzz import kept, make
from fuzz.compare import differences, group_differences
from fuzz.processes import has_kills, run

KEPT = sorted((Path(__file__).parent / "fuzz_cases").glob("*.json"))


def _kept(path: Path) -> Any:
    """One as a parameter; what takes several processes takes long."""
    marks = pytest.mark.torture if has_kills(kept.read(path)) else ()
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [_kept(path) for path in KEPT])
def test_what_once_went_wrong_is_right(path: Path) -> None:
    run(kept.read(path))


@pytest.mark.parametrize("seed", [2, 19])
def test_a_project_is_what_spark_and_duckdb_make_of_its_records(seed: int) -> None:
    run(make.case(seed))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(4))
def test_random_projects_are_what_spark_and_duckdb_make_of_their_records(part: int) -> None:
    first = random.randrange(2**32)
    for seed in range(first, first + 15):
        print(f"seed {seed}")
        run(make.case(seed))


@pytest.mark.torture
def test_a_case_goes_on_where_a_process_was_killed() -> None:
    case = make.case(8)
    kills = [{"do": "kill", "writes": writes, "later": later} for writes, later in ((20, 0.0), (9, 0.05))]
    steps = [kills[0], *case["steps"][:5], kills[1], *case["steps"][5:]]
    assert run({**case, "steps": steps})["killed"] == 2


def test_a_case_follows_from_its_seed(tmp_path: Path) -> None:
    case = make.case(7)
    assert case == make.case(7) != make.case(8)
    assert kept.read(kept.write(case, "why", tmp_path)).items() >= case.items()


def test_a_row_too_few_is_seen() -> None:
    assert differences([(1,), (1,)], [(1,)]) and not differences([(1,), (2,)], [(2,), (1,)])
    one, other = {1: {"a": 1.0}}, {1: {"a": 1.0 + 1e-6}}
    assert group_differences(one, other, {}) and group_differences(one, other, {1: {"a": 1.0}})
    assert not group_differences(one, {1: {"a": 1.0 + 1e-12}}, {1: {"a": 1.0}})
    assert group_differences(one, {}, {}) and not group_differences(
        one, {1: {"a": 1.0 - 1e-12}}, {1: {"a": 1e3}}
    )
