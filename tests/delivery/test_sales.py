"""The system `sales`: running totals and leaderboards equal plain Python's, whatever is killed."""

from __future__ import annotations

import math
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import SEED, Project, assert_same, once_each

from headwater import log
from headwater.lake import Lake
from headwater.produce import Faults

FAULTS = Faults(late=0.02, duplicate=0.02, malformed=0.01, invalid=0.01)
HOUR_MS = 3_600_000


def totals(project: Project, table: str, keys: str) -> dict[Any, Any]:
    rows = project.rows(table, f"{keys}, quantity, amount, purchases")
    return {key: (q, round(a, 6), n) for key, (q, a, n) in once_each(table, rows, 2).items()}


def rounded(sales: dict[Any, Any]) -> dict[Any, Any]:
    return {key: (quantity, round(amount, 6), n) for key, (quantity, amount, n) in sales.items()}


def assert_sales(project: Project) -> None:
    """Every table holds what the records that were sent make of it."""
    oracle = project.generator
    purchases = {p.purchase_id: p[1:] for p in oracle.purchases(project.records)}
    columns = "purchase_id, item_id, quantity, amount, purchase_time"
    silver = once_each("silver", project.rows("silver.purchases", columns), 1)
    assert_same("silver", {(key,): value for key, value in purchases.items()}, silver)

    in_all, by_hour = oracle.item_sales(project.records), oracle.item_sales(project.records, HOUR_MS)
    assert_same("totals", rounded(in_all), totals(project, "gold.item_sales", "0, item_id"))
    hours = totals(project, "gold.item_sales_1h", "epoch_ms(window_start), item_id")
    assert_same("by hour", rounded(by_hour), hours)

    top = once_each("top", project.rows("gold.top_sellers", "0, place, item_id, amount"), 2)
    assert_same("top", {at: (item,) for at, item in oracle.top(in_all, 10).items()}, items(top))
    assert all(math.isclose(amount, in_all[0, item][1], rel_tol=1e-9) for item, amount in top.values())
    top = once_each("top", project.rows("gold.top_sellers_1h", "epoch_ms(window_start), place, item_id"), 2)
    assert_same("top by hour", {at: (item,) for at, item in oracle.top(by_hour, 3).items()}, items(top))


def items(top: dict[Any, Any]) -> dict[Any, Any]:
    return {at: (row[0],) for at, row in top.items()}


@pytest.mark.parametrize(
    ("kills", "each"), [(1, 30_000), pytest.param(10, 60_000, marks=pytest.mark.torture)]
)
def test_totals_and_leaderboards_equal_the_oracle_after_kills(tmp_path: Path, kills: int, each: int) -> None:
    project = Project(tmp_path / "project", "sales", faults=FAULTS)
    draw = random.Random(SEED)
    try:
        for _ in range(kills):
            project.produce(each)
            with project.run() as run:
                run.batch("gold.top_sellers")
                project.produce(1_000)
                run.batch(draw.choice(["gold.item_sales", "gold.top_sellers", "silver.purchases"]))
                run.kill(signal.SIGKILL)
                run.wait()
        project.once()
        assert len(project.records) == kills * (each + 1_000)
        assert_sales(project)
        assert project.once() == []
        commits = list(changes(project, "gold.top_sellers"))
        assert commits and max(commits) <= 2 * 20  # old and new rows of ten places at most
    finally:
        project.broker.stop()


def changes(project: Project, table: str) -> list[int]:
    """How many rows each version of a table has in its change feed."""
    place = Lake(project.conf.lake).places()[table]
    commits = log.commits(place.path, after=0, upto=log.head(place.path))
    return [sum(max(file.rows, 0) for file in commit.changes) for commit in commits]
