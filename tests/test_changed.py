"""A stream over a table whose rows change in place follows its change feed: a row for a row, and right."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, ENDED, TOP, VISITS, Visits

from headwater import query
from headwater.errors import CommitError
from headwater.errors.codes import Code
from headwater.operations.maintain.clean import clean
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner.changes import plan
from headwater.query.inspect import status
from headwater.storage import log

EVEN, LESS, NAMED, LONG, FIRST, SESSIONS = (
    f"gold.{name}" for name in ("even", "less", "named", "long", "first", "sessions")
)
QUERIES = {  # of each, what it is of the table that it follows
    EVEN: "SELECT user, total, 2 * visits AS twice FROM {gold.counts} WHERE total % 2 = 0",
    LESS: "SELECT user, twice FROM {gold.even} WHERE twice % 4 = 0",
    LONG: "SELECT user, since, until FROM {gold.sessions} WHERE mean > 2",
    FIRST: "SELECT user, total FROM {gold.top} WHERE place = 1",
}
FILES = {
    "gold/sessions.sql": """CREATE STREAMING TABLE gold.sessions AS
        SELECT user, session_window.start AS since, session_window.end AS until, avg(n) AS mean
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY session_window(event_time, '2 seconds'), user""",
    "gold/named.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source=["gold.counts", "reference.names"])
def named(counts, names):
    """Totals with their users' names."""
    return counts.join(F.broadcast(names), "user", "left").where("total % 3 < 2")
''',
    "conf/reference/names.csv": "user,name\na,Anna\nb,Bert\n",
    "conf/reference/names.ddl": "user STRING, name STRING\n",
    **{
        f"{name.replace('.', '/')}.sql": f"CREATE STREAMING TABLE {name} AS "
        + text.replace("{", "STREAM ").replace("}", "")
        for name, text in QUERIES.items()
    },
}
ABOVE = (VISITS, COUNTS, TOP, SESSIONS)
EVERY = (*ABOVE, *QUERIES, NAMED)


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path / "project", interpreted, FILES)
    (case.root / f"{ENDED.replace('.', '/')}.sql").unlink()  # nothing follows it
    return case


def check(case: Visits) -> None:
    """Each holds what its query says of what it follows."""
    queries = QUERIES | {
        NAMED: "SELECT c.user, visits, total, name FROM {gold.counts} c "
        "LEFT JOIN {reference.names} n ON n.user = c.user WHERE total % 3 < 2"
    }
    for name, text in queries.items():
        want = query.run(text.replace("{", "").replace("}", ""), project=case.root).rows
        assert case.rows(name) == sorted(want, key=repr), name


def test_rows_come_change_and_go(case: Visits) -> None:
    draw, seen = random.Random(31), dict[str, set[int]]()
    for _ in range(4):
        case.visit(draw, 12)
        case.drain(*EVERY)
        check(case)
        for name in (*QUERIES, NAMED):
            seen.setdefault(name, set()).add(len(case.rows(name)))
    assert all(len(seen[name]) > 1 for name in (EVEN, NAMED, LONG)), seen
    gone = {name: _metric(case, name, "deleted") for name in (EVEN, NAMED, LONG)}
    assert gone[EVEN] and gone[NAMED], gone
    assert {one.behind for one in status.standings(case.definitions) if one.table in QUERIES} == {0}


def _metric(case: Visits, name: str, what: str) -> int:
    """How many rows merges into a table have inserted, updated or deleted."""
    path = case.lake.place(name).path
    commits = log.commits(path, after=0, upto=log.head(path))
    return sum(commit.metrics.get(f"num_target_rows_{what}", 0) for commit in commits)


def test_it_begins_with_what_is_there_and_may_take_many_commits_at_once(case: Visits) -> None:
    draw = random.Random(32)
    for _ in range(2):
        case.visit(draw, 15)
        case.drain(*ABOVE)
    case.drain(*ABOVE, EVEN, NAMED, LONG, FIRST)
    for name in (COUNTS, TOP):  # of these the log loses its beginning
        place = case.lake.place(name)
        DeltaTable(place.path).create_checkpoint()
        clean(place.path, upto=log.head(place.path), before=datetime.now(UTC) + timedelta(seconds=1))
        assert log.first(place.path) > 0
    case.drain(*EVERY)
    check(case)
    again = "CREATE STREAMING TABLE gold.again AS SELECT user, visits FROM STREAM gold.counts"
    case.write({"gold/again.sql": again})
    for _ in range(2):
        case.visit(draw, 15)
        case.drain(*ABOVE)
    case.drain(*EVERY, "gold.again")
    check(case)
    assert case.rows("gold.again") == [row[:2] for row in case.rows(COUNTS)]


@pytest.mark.parametrize(
    "step", ["built", *(pytest.param(at, marks=pytest.mark.torture) for at in ("pinned", "committed"))]
)
def test_a_batch_that_was_killed_is_there_once(
    case: Visits, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    draw = random.Random(33)
    case.visit(draw)
    case.drain(*EVERY)
    case.visit(draw)
    case.drain(*ABOVE)

    def killed(at: str, flow: str) -> None:
        if at == step and flow in (*QUERIES, NAMED):
            raise CommitError("killed", code="WRITTEN_BY_OTHERS")

    for name in (EVEN, NAMED, LONG):
        with monkeypatch.context() as patched:
            patched.setattr("headwater.runtime.failpoints.reach", killed)
            with raises_code("WRITTEN_BY_OTHERS"):
                case.drain(name)
    case.drain(*EVERY)
    check(case)


def test_it_is_planned_rebuilt_and_proven_like_any_other(case: Visits) -> None:
    draw = random.Random(34)
    for _ in range(2):
        case.visit(draw)
        case.drain(*EVERY)
    assert {one.verdict.effect for one in plan(case.definitions)} == {"unchanged"}
    done = case.rebuild(VISITS, verify=True)
    assert done.swapped and not any(done.differences), done.differences
    assert {*QUERIES, NAMED} <= {one.table for one in done.differences}
    check(case)
    proven = list(reconcile(case.definitions, [EVEN, LONG], since_last=True))
    case.visit(draw)
    case.drain(*EVERY)
    check(case)
    again = list(reconcile(case.definitions, [EVEN, LONG, FIRST], since_last=True))
    assert all(one.same for one in (*proven, *again))
    assert [one.since for one in again] == [*(one.version for one in proven), None]
    case.change("gold/even.sql", "total % 2 = 0", "total % 2 = 1")
    assert {one.table for one in plan(case.definitions) if one.verdict.effect == "rebuild"} == {EVEN, LESS}


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        (
            "SELECT total, visits FROM STREAM gold.counts",
            "KEYS_NOT_KEPT",
            r"keep its keys as they are \(user\)",
        ),
        (
            "SELECT upper(user) AS user FROM STREAM gold.counts",
            "KEYS_NOT_KEPT",
            r"keep its keys as they are \(user\)",
        ),
        (
            "SELECT total AS user, total FROM STREAM gold.counts",
            "KEYS_NOT_KEPT",
            r"keep its keys as they are \(user\)",
        ),
        (
            "SELECT sum(total) AS n FROM STREAM gold.counts",
            "INPUT_ROWS_CHANGE",
            r"aggregates gold\.counts, whose rows change in place",
        ),
        ("SELECT DISTINCT user FROM STREAM gold.counts", "ACROSS_ROWS", "DISTINCT"),
        (
            "SELECT user, true AS _gone FROM STREAM gold.counts",
            "COLUMN_RESERVED",
            "a column _gone of its own",
        ),
        (
            "SELECT user, total AS _Change_Type FROM STREAM gold.counts",
            "COLUMN_RESERVED",
            "a column _Change_Type of its own",
        ),
    ],
)
def test_what_can_not_follow_is_said(case: Visits, text: str, code: Code, why: str) -> None:
    case.write({"gold/even.sql": f"CREATE STREAMING TABLE gold.even AS {text}"})
    (case.root / "gold" / "less.sql").unlink()
    with raises_code(code, table="gold.even", match=rf"gold\.even.*{why}"):
        case.once()


def test_rows_with_other_keys_are_refused(case: Visits) -> None:
    text = "SELECT user, explode(array(total, visits)) AS n FROM STREAM gold.counts"
    case.write({"gold/even.sql": f"CREATE STREAMING TABLE gold.even AS {text}"})
    (case.root / "gold" / "less.sql").unlink()
    case.visit(random.Random(35))
    case.drain(VISITS, COUNTS)
    with raises_code("KEYS_NOT_KEPT", table="gold.even"):
        case.drain(EVEN)
