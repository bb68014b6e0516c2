"""Tables are computed again from exactly what they have read, and every row that is other is found."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner
from visits import COUNTS, DERIVED, ENDED, EPOCH, RAW, TOP, VISITS, Visits

from headwater.cli import app
from headwater.operations.rebuild.proofs import standings
from headwater.operations.rebuild.reconcile import Reconciled, reconcile
from headwater.operations.rebuild.window import Window
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.delta import files

SESSIONS, RUNS = "gold.sessions", "gold.runs"
SUMS, MINUTES = "gold.sums", "gold.minutes"
EVERY = (*DERIVED, SESSIONS, RUNS, SUMS, MINUTES)
FILES = {
    "gold/sessions.sql": """CREATE STREAMING TABLE gold.sessions AS
        SELECT user, session_window.start AS since, session_window.end AS until, avg(n) AS mean
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY session_window(event_time, '2 seconds'), user""",
    "gold/sums.sql": """CREATE MATERIALIZED VIEW gold.sums AS
        SELECT user, sum(n) AS total FROM silver.visits GROUP BY user""",
    "gold/minutes.sql": """CREATE STREAMING TABLE gold.minutes AS
        SELECT window.start AS since, window.end AS until, user, count(*) AS visits
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '20 seconds', '10 seconds'), user""",
    "gold/runs.py": '''import headwater as hw
@hw.process(source="silver.visits", keys=["user"], event_time="event_time", delay="10 seconds",
            state="number BIGINT", columns="user STRING, at TIMESTAMP, number BIGINT")
def runs(visit, user):
    """One row per visit, numbered."""
    user.state = {"number": (user.state or {"number": 0})["number"] + 1}
    yield {**user.key, "at": user.now, **user.state}
''',
    "quality/silver.visits.json": json.dumps(
        {
            "name": "silver.visits",
            "expectations": [
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "n", "max_value": 6},
                    "severity": "critical",
                    "meta": {"action": "quarantine"},
                }
            ],
        }
    ),
}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("reconcile") / "project", interpreted, FILES)
    draw = random.Random(21)
    for _ in range(3):
        case.visit(draw)
        case.drain(*EVERY)
    case.visit(draw)
    case.drain(VISITS, COUNTS)  # the others are behind
    return case


@pytest.fixture
def undone(case: Visits) -> Iterator[None]:
    """What a test does to files is not there for the next."""
    lake, sent = case.root / ".headwater" / "lake", case.sent
    aside = lake.with_name("aside")
    shutil.copytree(lake, aside)
    yield
    shutil.rmtree(lake)
    aside.rename(lake)
    case.sent = sent


def tamper(path: str, column: str | None = None) -> None:
    """Add one to the column in the first row of a file; or take that row away."""
    rows = pq.read_table(path, partitioning=None)
    found = rows.to_pylist()
    if column is None:
        del found[0]
    else:
        found[0][column] += 1
    pq.write_table(pa.Table.from_pylist(found, rows.schema), path)


def run(case: Visits, *names: str, **options: Any) -> list[Reconciled]:
    return list(reconcile(case.definitions, names, **options))


def test_tables_of_every_kind_are_what_their_definitions_make(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: log.head(case.lake.place(name).path) for name in EVERY}
    reach, sent = failpoints.reach, []

    def meanwhile(step: str, flow: str) -> None:
        if (step, flow, sent) == ("built", VISITS, []):
            sent.append(True)
            case.visit(random.Random(22))
            case.drain(*EVERY)
        reach(step, flow)

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", meanwhile)
        found = run(case, *EVERY)
    assert sent and [one.table for one in found] == [*EVERY]
    assert all(one.same and one.notes == [] and one.since is None for one in found), found
    assert found[0].version == before[VISITS] < log.head(case.lake.place(VISITS).path)
    compared = {each.table: each.before for one in found for each in one.differences}
    beside = {f"{name}{kind}" for name in (ENDED, RUNS) for kind in ("_late", "__state")}
    assert compared.keys() == {*EVERY, *beside, "quarantine.silver_visits"}
    assert all(compared[name] for name in (*EVERY, "quarantine.silver_visits", f"{ENDED}_late"))
    assert not list((case.root / ".headwater/lake/_reconcile").glob("*/tables"))
    proven = {one.table: one.proven for one in standings(case.definitions) if one.table in EVERY}
    assert proven == {one.table: one.version for one in found}


@pytest.mark.usefixtures("undone")
def test_a_row_that_was_tampered_with_is_found(case: Visits) -> None:
    for name, column in ((VISITS, "n"), (ENDED, "visits"), (TOP, "total")):
        tamper(files(case.lake.place(name).path)[0], column)
    tamper(files(case.lake.place("quarantine.silver_visits").path)[0])
    before = {one.table: one.proven for one in standings(case.definitions)}
    silver, ended, top, counts = run(case, VISITS, ENDED, TOP, COUNTS, limit=3)
    assert {each.table: (each.gone, each.new) for each in silver.differences} == {
        VISITS: (1, 1),
        "quarantine.silver_visits": (0, 1),
    }
    one = silver.differences[0]
    assert one.only_before[0]["n"] == one.only_after[0]["n"] + 1
    assert [(each.gone, each.new) for each in ended.differences if each] == [(1, 1)]
    assert [(each.gone, each.new) for each in top.differences if each] == [(1, 1)]
    assert not counts.same  # it was made before its input was tampered with
    assert {one.table: one.proven for one in standings(case.definitions)} == before


@pytest.mark.usefixtures("undone")
def test_some_windows_are_compared_from_the_files_that_have_rows_of_them(case: Visits) -> None:
    draw = random.Random(23)
    case.sent += 10_000  # far from what came before
    for _ in range(3):
        case.visit(draw, 20)
        case.drain(*EVERY)
    begin = EPOCH + case.sent - 60
    at = [datetime.fromtimestamp(begin + more, UTC).isoformat() for more in (-60, 40)]
    (found,) = run(case, MINUTES, window=Window.parse("/".join(at)))
    (whole,) = run(case, MINUTES)
    assert found.same and whole.same and 0 < found.rows < whole.rows
    assert 0 < found.differences[0].before < whole.differences[0].before
    proven = {one.table: one.at for one in standings(case.definitions)}[MINUTES]
    for path in files(case.lake.place(MINUTES).path, None):
        tamper(path, "visits")
    (spoilt,) = run(case, MINUTES, limit=100)
    inside = {row["since"] for row in spoilt.differences[0].only_before}
    later, earlier = (
        run(case, MINUTES, window=Window.parse("/".join(span)), limit=100)[0].differences[0].only_before
        for span in (at, ["2020-01-01", at[0]])
    )
    assert {row["since"] for row in (*later, *earlier)} <= inside and (later or earlier)
    assert {one.table: one.at for one in standings(case.definitions)}[MINUTES] == proven
    command = ["reconcile", MINUTES, "--window", "2020-01-01/2020-01-02", "--project", str(case.root)]
    said = CliRunner().invoke(app, command)
    assert (
        said.exit_code == 0 and "windows in 2020-01-01/2020-01-02 computed again: the same (0" in said.stdout
    )


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (VISITS, "has no windows of time"),
        (COUNTS, "has no windows of time"),
        (SESSIONS, "has no windows of time"),
        (TOP, "has no windows of time"),
        (ENDED, "leaves late rows out"),
    ],
)
def test_of_which_tables_windows_can_not_be_computed_alone(case: Visits, table: str, why: str) -> None:
    with raises_code(
        "WINDOWS_NOT_COMPARABLE", match=f"{table} {why}.*; compare all of it: leave --window away"
    ):
        run(case, table, window=Window.parse("2026-01-31/2026-02-01"))


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31/", "today/2026-01-31", "2026-01-31/2026-01-31"])
def test_what_is_no_window(text: str) -> None:
    with raises_code("TIME_INVALID", match=f"--window {text} is no span between two times; write two"):
        Window.parse(text)


@pytest.mark.usefixtures("undone")
def test_a_file_that_is_gone_is_named(case: Visits) -> None:
    path = Path(files(case.lake.place(COUNTS).path)[0])
    path.unlink()
    with raises_code(
        "NOT_COMPARABLE",
        table="gold.counts",
        match=rf"gold\.counts: its rows can't be compared: .*{path.name}",
    ):
        run(case, COUNTS)


@pytest.mark.usefixtures("undone")
def test_what_was_added_since_the_last_proof_is_enough_of_rows(case: Visits) -> None:
    case.drain(*EVERY)
    first = run(case, VISITS)[0]
    case.visit(random.Random(23))
    case.drain(VISITS)
    again = run(case, VISITS, since_last=True)[0]
    assert again.same and again.since == first.version < again.version
    assert again.rows == 40 < first.rows
    nothing = run(case, VISITS, since_last=True)[0]
    assert nothing.same and nothing.since == nothing.version == again.version and nothing.rows == 0
    old = files(case.lake.place(VISITS).path)
    tamper(old[0])  # which is proven
    case.visit(random.Random(24))
    case.drain(VISITS)
    added = [file for file in files(case.lake.place(VISITS).path) if file not in old]
    tamper(added[0])
    gone = run(case, VISITS, since_last=True)[0]
    assert {each.table: (each.gone, each.new) for each in gone.differences if each} == {VISITS: (0, 1)}


@pytest.mark.usefixtures("undone")
def test_what_was_computed_is_kept_and_goes_on_from_the_last_proof(case: Visits) -> None:
    kept, views = [COUNTS, ENDED, SESSIONS, RUNS, SUMS, MINUTES], [TOP]
    draw = random.Random(25)
    case.drain(*EVERY)
    first = run(case, *kept, *views, since_last=True)
    assert all(one.same and one.since is None for one in first)
    assert all(f"{one.table} was computed as a whole: " in one.notes[0] for one in first)
    for _ in range(2):
        case.visit(draw)
        case.drain(*EVERY)
        again = run(case, *kept, *views, since_last=True)
        for before, one in zip(first, again, strict=True):
            assert one.same and one.version > before.version, one
            if one.table in views:
                assert one.notes == [f"{one.table} was computed as a whole: it is a view"]
            else:
                assert one.since == before.version and 0 < one.rows <= 40 and not one.notes, one
        first = again
    tamper(files(case.lake.place(COUNTS).path)[0], "visits")  # a row that may not have changed since
    counts = run(case, COUNTS, since_last=True)[0]
    assert not counts.same and counts.since is not None
    counts = run(case, COUNTS, since_last=True)[0]
    assert not counts.same and counts.notes[0].endswith("what was computed for its last proof was not kept")


@pytest.mark.usefixtures("undone")
def test_what_was_kept_is_not_trusted_after_a_kill(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    case.drain(*EVERY)
    run(case, COUNTS, ENDED, since_last=True)
    case.visit(random.Random(26))
    case.drain(*EVERY)

    def killed(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr("headwater.operations.rebuild.shadow.Trial.clear", lambda self: None)
        patched.setattr("headwater.operations.rebuild.reconcile.differences", killed)
        for name in (COUNTS, ENDED):
            with pytest.raises(SystemExit):
                run(case, name, since_last=True)
    for one in run(case, COUNTS, ENDED, since_last=True):
        assert one.same and one.since is None and one.notes[0].endswith("was not kept"), one
        assert run(case, one.table, since_last=True)[0].since == one.version


@pytest.mark.usefixtures("undone")
def test_a_table_that_is_swapped_meanwhile_is_not_judged(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach, swapped = failpoints.reach, []

    def meanwhile(step: str, flow: str) -> None:
        if (step, flow, swapped) == ("built", TOP, []):
            swapped.append(True)
            case.rebuild(TOP)
        reach(step, flow)

    monkeypatch.setattr("headwater.runtime.failpoints.reach", meanwhile)
    with raises_code("SWAPPED_MEANWHILE", table="gold.top"):
        run(case, TOP)


def test_what_can_not_be_compared_is_said(case: Visits) -> None:
    with raises_code("TABLE_IS_HISTORY", table="bronze.raw"):
        run(case, RAW)
    with raises_code("UNKNOWN_TABLE", table="gold.nope"):
        run(case, "gold.nope")


@pytest.mark.usefixtures("undone")
def test_the_command_shows_rows_and_ends_with_1(case: Visits) -> None:
    path = files(case.lake.place(TOP).path)[0]
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    arguments = ["--project", str(case.root)]
    done = CliRunner().invoke(app, ["reconcile", TOP, *arguments])
    assert done.exit_code == 1, done.output
    assert f"{TOP} version" in done.stdout and "NOT the same" in done.stdout
    assert f"{TOP}: only computed" in done.stdout
    done = CliRunner().invoke(app, ["reconcile", SESSIONS, "--json", *arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found[0]["same"] and found[0]["table"] == SESSIONS
    done = CliRunner().invoke(app, ["reconcile", "--json", *arguments])
    listed = {one["table"]: one for one in json.loads(done.stdout)}
    assert listed[SESSIONS]["proven"] == found[0]["version"] == listed[SESSIONS]["version"]
