"""What a change of a definition would do is said before anything runs, and what can't go on does not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner
from visits import COUNTS, DERIVED, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater.cli import app
from headwater.planner.changes import plan
from headwater.planner.changes.verdict import judge
from headwater.testing import Project


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("plan"), interpreted)
    case.visit(random.Random(3))
    case.drain()
    return case


@pytest.fixture
def case(drained: Visits, tmp_path: Path) -> Visits:
    return drained.copied(tmp_path / "project")


def effects(case: Visits) -> dict[str, str]:
    return {line.table: line.verdict.effect for line in plan(case.definitions)}


def test_a_project_as_it_was_is_unchanged_and_one_that_never_ran_is_new(
    tmp_path: Path, interpreted: SparkSession
) -> None:
    case = Visits(tmp_path / "project", interpreted)
    assert effects(case) == {RAW: "unchanged", **dict.fromkeys(DERIVED, "new")}
    case.visit(random.Random(3))
    case.drain()
    assert effects(case) == dict.fromkeys((RAW, *DERIVED), "unchanged")
    case.write({"gold/counts.sql": "-- counted\n" + (case.root / "gold/counts.sql").read_text()})
    assert effects(case) == dict.fromkeys((RAW, *DERIVED), "unchanged")


def test_a_plan_of_a_table_has_what_it_reads(case: Visits) -> None:
    assert [line.table for line in plan(case.definitions, [COUNTS])] == [RAW, VISITS, COUNTS]
    assert len(plan(case.definitions)) == 1 + len(DERIVED)


CHANGES = [
    (
        "silver/visits.py",
        "n >= 0",
        "n >= 3",
        {VISITS: "resumes"},
        "definition changed: for rows from here on",
    ),
    (
        "silver/visits.py",
        'raw.where("n >= 0")',
        'raw.where("n >= 0").withColumn("more", F.lit(1))',
        {VISITS: "resumes"},
        "column more added: NULL in the rows before; a rebuild fills them",
    ),
    (
        "gold/counts.sql",
        "sum(n) AS total",
        "max(n) AS total",
        {COUNTS: "rebuild", TOP: "rebuild"},
        "its query or function changed",
    ),
    ("gold/ended.sql", "'1 minute'", "'2 minutes'", {ENDED: "rebuild"}, "its query or function changed"),
    ("gold/top.sql", "total DESC", "total", {TOP: "resumes"}, "definition changed: it is computed anew"),
    ("gold/top.sql", "'user'", "'place'", {TOP: "rebuild"}, "keys: user → place"),
    (
        "bronze/raw.py",
        "'raw'",
        "'other'",
        {RAW: "loses"},
        "of the topic raw, of which what has not been read",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "found", "why"), CHANGES)
def test_what_a_change_would_do_is_said(
    case: Visits, file: str, old: str, new: str, found: dict[str, str], why: str
) -> None:
    case.change(file, old, new)
    before = case.everything()
    lines = {line.table: line for line in plan(case.definitions)}
    assert {name: line.verdict.effect for name, line in lines.items()} == {
        **dict.fromkeys((RAW, *DERIVED), "unchanged"),
        **found,
    }
    assert why in lines[next(iter(found))].verdict.why[0]
    said = CliRunner().invoke(app, ["plan", "--project", str(case.root), "--json"])
    person = bool({"rebuild", "loses"} & set(found.values()))
    assert said.exit_code == (2 if person else 0), said.output
    assert {
        one["table"]: one["verdict"]["effect"] for one in json.loads(said.stdout)
    }.items() >= found.items()
    assert case.everything() == before
    root = next(iter(found))
    if found[root] == "rebuild":
        assert lines[root].rows == {VISITS: 40, TOP: 3}.get(root, len(case.rows(VISITS)))
        with raises_code(
            "DEFINITION_CHANGED", match=f"{root} can't go on as it was changed: .*headwater rebuild"
        ):
            case.drain(root)


def test_a_time_that_nothing_holds_back_is_warned_of(interpreted: SparkSession, tmp_path: Path) -> None:
    summed = """CREATE STREAMING TABLE gold.{name} TBLPROPERTIES ('headwater.emit' = '{emit}') AS
        SELECT window.start AS since, count(*) AS n
        FROM STREAM silver.{of} WATERMARK {time} DELAY OF INTERVAL 1 SECOND
        GROUP BY window({time}, '1 minute')"""
    made = "CREATE STREAMING TABLE silver.{name} AS SELECT *, {made} FROM STREAM silver.events"
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        "silver/events.py": """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("s BIGINT, at TIMESTAMP"))
def events(raw):
    return raw
""",
        "silver/timed.sql": made.format(name="timed", made="timestamp_seconds(s) AS event_time"),
        "silver/same.sql": made.format(name="same", made="s + 1 AS t"),
        "gold/late.sql": summed.format(name="late", emit="final", of="timed", time="event_time"),
        "gold/corrected.sql": summed.format(name="corrected", emit="update", of="timed", time="event_time"),
        "gold/guarded.sql": summed.format(name="guarded", emit="final", of="same", time="at"),
    }
    case = Project(files, tmp_path, spark=interpreted)
    warned = {line.table: line.warnings for line in plan(case.definitions) if line.warnings}
    assert list(warned) == ["gold.late"]
    assert "one row of silver.timed whose event_time" in warned["gold.late"][0]
    assert "where silver.events decodes" in warned["gold.late"][0]


def test_what_a_change_asks_of_the_targets_of_sinks_is_said(case: Visits) -> None:
    case.write(
        {
            "conf/local.yaml": "kafka: embedded\npostgres: {dwh: {host: nowhere}}\n",
            "silver/sent.py": """import headwater as hw
visits = hw.postgres_sink("silver.visits", connection="dwh", into="public.visits")
""",
            "gold/sent.py": """import headwater as hw
table = hw.postgres_sink("gold.top", connection="dwh", into="public.top")
topic = hw.kafka_sink("gold.top", topic="top")
""",
        }
    )
    assert not any(line.warnings for line in plan(case.definitions))
    case.change("silver/visits.py", 'raw.where("n >= 0")', 'raw.where("n >= 0").withColumn("m", F.lit(1))')
    case.change("gold/top.sql", "'user'", "'place'")
    warned = {line.table: line.warnings for line in plan(case.definitions) if line.warnings}
    assert warned == {
        VISITS: ("postgres:dwh.public.visits needs the columns m int32, or its sink stops",),
        TOP: tuple(
            f"{target} has rows by its former keys: its sink stops until it is emptied"
            for target in ("postgres:dwh.public.top", "kafka:top")
        ),
    }


def test_what_no_row_follows_from_changes_nothing(case: Visits) -> None:
    case.change("silver/visits.py", "One row per visit", "Visits")
    case.change(
        "silver/visits.py", 'source="bronze.raw", ', 'source="bronze.raw", trigger="5s",  # seldom\n    '
    )
    case.change("gold/counts.sql", "count(*) AS visits", "count(*) /* of all */ AS visits -- each\n")
    assert set(effects(case).values()) == {"unchanged"}
    case.change("gold/ended.sql", "INTERVAL 10 SECONDS", "INTERVAL 20 SECONDS")
    assert effects(case)[ENDED] == "resumes"
    case.change("gold/counts.sql", "/* of all */", "FILTER (WHERE user <> 'a  b')")
    assert effects(case)[COUNTS] == "rebuild"
    case.drain(VISITS)
    assert case.rebuild(COUNTS).swapped and effects(case)[COUNTS] == "unchanged"
    case.change("gold/counts.sql", "'a  b'", "'a b'")
    assert effects(case)[COUNTS] == "rebuild"


def test_with_a_rebuild_or_a_run_all_is_as_it_was_defined(case: Visits) -> None:
    case.change("silver/visits.py", 'raw.where("n >= 0")', 'raw.where("n >= 0").withColumn("more", F.lit(1))')
    case.change("gold/top.sql", "total DESC", "total")
    assert case.rebuild(VISITS).swapped
    assert set(effects(case).values()) == {"unchanged"}
    assert case.everything() == of_new_lake(case)
    case.change("silver/visits.py", "n >= 0", "n >= 3")
    assert effects(case)[VISITS] == "resumes"
    case.visit(random.Random(4))
    case.drain()
    assert set(effects(case).values()) == {"unchanged"}


def test_a_table_without_a_definition_is_named(case: Visits) -> None:
    (case.root / "gold/top.sql").unlink()
    assert effects(case)[TOP] == "gone"
    said = CliRunner().invoke(app, ["plan", "--project", str(case.root)])
    assert said.exit_code == 0
    assert "nothing writes it any more" in " ".join(said.stdout.split()), said.stdout


def test_a_process_goes_on_with_another_time_to_live_but_not_with_another_state() -> None:
    facts = {"kind": "process", "state": "n INT", "time to live": "1 hour", "definition": "x"}
    assert judge(facts, {**facts, "time to live": "2 hours"}).effect == "resumes"
    assert judge(facts, {**facts, "state": "n BIGINT"}).why == ("state: n INT → n BIGINT",)
    assert judge(facts, {**facts, "kind": "rows"}).effect == "rebuild"
