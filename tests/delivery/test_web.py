"""The system `web`: visits and counts are plain Python's, whatever is killed; in PostgreSQL too."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SEED, Project, assert_same, once_each

from headwater.produce import Faults

sys.path.append(str(Path(__file__).parents[1]))
from postgres import PASSWORD, Server

FAULTS = Faults(late=0.02, duplicate=0.02, malformed=0.01, invalid=0.01)
SESSIONS, COUNTS = "gold.web_sessions", "gold.page_views_1m"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", PASSWORD)
    connection = {**server.options, "password": "env:WAREHOUSE_PASSWORD"}
    project = Project(tmp_path / "project", "web", faults=FAULTS, postgres={"warehouse": connection})
    try:
        yield project
    finally:
        project.broker.stop()


@pytest.mark.parametrize(
    ("kills", "each"), [(1, 30_000), pytest.param(12, 30_000, marks=pytest.mark.torture)]
)
def test_visits_and_counts_equal_the_oracle_after_kills(
    project: Project, server: Server, kills: int, each: int
) -> None:
    draw = random.Random(SEED)
    for _ in range(kills):
        project.produce(each)
        with project.run() as run:
            run.batch(draw.choice(["silver.page_views", SESSIONS, COUNTS]))
            run.kill(signal.SIGKILL)
            run.wait()
    project.once()
    assert_web(project)
    columns = "user_id, {} session_start{}, {} session_end{}, views"
    want = once_each("visits", project.rows(SESSIONS, columns.format("epoch_ms(", ")", "epoch_ms(", ")")), 2)
    ours = columns.format(*("(1000 * extract(epoch FROM ", "))::bigint") * 2)
    got = once_each("postgres", server.rows(f"SELECT {ours} FROM web.sessions"), 2)
    assert_same("visits in PostgreSQL", want, got)
    project.headwater("run", "--once", "--close")
    visits = project.generator.web_sessions(project.records)
    assert_same("all visits", {**visits.over, **visits.open}, sessions(project, SESSIONS))
    assert not project.rows(f"{SESSIONS}__state", "*")


def sessions(project: Project, table: str) -> dict[object, object]:
    columns = "user_id, epoch_ms(session_start), epoch_ms(session_end), views"
    return dict(once_each(table, project.rows(table, columns), 2))


def assert_web(project: Project) -> None:
    """Every table holds what the records that were sent make of it."""
    views = [view[:3] for view in project.generator.views(project.records)]
    assert sorted(project.rows("silver.page_views", "user_id, page, viewed_at")) == sorted(views)

    visits = project.generator.web_sessions(project.records)
    assert len(visits.over) > 500 < visits.late
    assert_same("visits that are over", visits.over, sessions(project, SESSIONS))
    assert_same("visits that are open", visits.open, sessions(project, f"{SESSIONS}__state"))
    assert len(project.rows(f"{SESSIONS}_late", "1")) == visits.late

    counts, late = project.generator.page_views_1m(project.records)
    columns = "epoch_ms(window_start), page, views"
    want = {key: (n,) for key, n in counts.items()}
    assert_same("views per minute", want, once_each(COUNTS, project.rows(COUNTS, columns), 2))
    assert late
    assert len(project.rows(f"{COUNTS}_late", "1")) == late
