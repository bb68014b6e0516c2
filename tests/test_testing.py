"""The package with which projects are tested, by its public names; the examples of its page run."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors import FlowError, ProjectError, QueryError
from headwater.planner import analysis
from headwater.runtime import sessions
from headwater.testing import Faults, Project, Record, apply, assert_same
from headwater.testing.files import write

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
RAW, VISITS, TOTALS, MINUTES = "bronze.raw", "silver.visits", "gold.totals", "gold.minutes"


def examples() -> dict[str, Any]:
    """The names that the blocks of the page make, one after the other."""
    found: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S):
        exec(compile(block, "docs/testing.md", "exec"), found)
    return found


EXAMPLES = examples()
FILES: dict[str, str] = EXAMPLES["FILES"]
SUITE = {
    "name": VISITS,
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "n", "max_value": 90},
            "severity": "critical",
            "meta": {"action": "quarantine"},
        }
    ],
}


@pytest.fixture
def project(tmp_path: Path, interpreted: SparkSession) -> Project:
    return Project(FILES, tmp_path)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("test_")])
def test_the_examples_of_the_page_hold(interpreted: SparkSession, name: str) -> None:
    EXAMPLES[name]()


def test_neither_its_session_nor_those_of_its_flows_compile_queries(interpreted: SparkSession) -> None:
    for session in (interpreted, sessions.child(interpreted, parallelism=2)):
        plan = session.range(9).selectExpr("id + 1 AS n")._jdf.queryExecution().executedPlan()
        assert "*(" not in str(plan), "a star before a node says that it is compiled"
    assert session.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_page_names_methods_that_are_there() -> None:
    named = re.findall(r"`(\w+)\(", PAGE.split("| method |")[1].split("\n\n")[0])
    assert len(named) > 9 and all(callable(getattr(Project, name)) for name in named)


def test_a_copy_of_a_project_never_writes_into_its_lake(interpreted: SparkSession, tmp_path: Path) -> None:
    there = tmp_path / "there"
    write(there, {**FILES, "conf/local.yaml": f"kafka: embedded\ncores: 1\nlake: {tmp_path / 'lake'}\n"})
    project = Project(there, tmp_path / "copy")
    project.send("raw", [{"user": "ann", "n": 1}]).step()
    assert project.rows("gold.totals", "user, total") == [("ann", 1)]
    assert project.lake.root == tmp_path / "copy/.headwater/lake" and project.definitions.conf.cores == 1
    assert not (tmp_path / "lake").exists()


def test_records_come_as_bronze_has_them(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, at="2026-01-01T12:00:00Z")
    past = project.clock.now() - timedelta(hours=1)
    project.send(
        "raw", [None, "{", Record({"n": 1}, key="k", partition=1, timestamp=past, headers=(("h", b"v"),))]
    )
    project.clock.advance("1s")
    project.send(RAW, [Record(b"x", offset=7), b"y"])
    columns = '"partition", "offset", "value", "key", "timestamp", ingested_at, topic, cluster, headers'
    now, later = project.clock.now() - timedelta(seconds=1), project.clock.now()
    assert project.rows(RAW, columns) == [
        (0, 0, None, None, now, now, "raw", "main", None),
        (0, 1, b"{", None, now, now, "raw", "main", None),
        (0, 7, b"x", None, later, later, "raw", "main", None),
        (0, 8, b"y", None, later, later, "raw", "main", None),
        (1, 0, b'{"n": 1}', b"k", past, now, "raw", "main", [{"key": "h", "value": b"v"}]),
    ]
    assert project.target(RAW).flows[RAW]["consumed"] == {"raw": {"0": 9, "1": 1}}
    with pytest.raises(ProjectError, match=r"no table of bronze reads topic rows; known: bronze\.raw"):
        project.send("rows", [])


def test_what_is_rejected_is_told_and_adds_up(project: Project) -> None:
    project.write({f"quality/{VISITS}.json": json.dumps(SUITE)})
    project.send("raw", [{"user": "ann", "n": 1}, {"user": "ann", "n": 91}, b"{"]).step()
    (batch,) = project.batches(VISITS)
    assert (batch.rows_in, batch.rows_out, batch.quarantined) == (3, 1, 2)
    assert len(project.rows("quarantine.silver_visits")) == 2
    said = [event["flow"] for event in project.events if event["event"] == "batch"]
    assert said[0] == VISITS and sorted(said[1:]) == [MINUTES, TOTALS]
    found = apply(project, VISITS, [{"n": 1}, {"n": 91}, b"{"])
    assert [row["n"] for row in found.rows] == [1]
    assert sorted(row["offset"] for row in found.rejected) == [1, 2]
    assert project.rows(TOTALS, "user, total") == [("ann", 1)]  # nothing was written


def test_a_rule_that_fails_a_batch_fails_literal_rows(project: Project) -> None:
    suite = json.dumps(SUITE).replace('"quarantine"', '"fail"')
    project.write({f"quality/{VISITS}.json": suite})
    with pytest.raises(FlowError, match=r"silver\.visits: batch 0 fails"):
        apply(project, VISITS, [{"n": 91}])
    with pytest.raises(FlowError, match=r"silver\.visits: batch 0 fails"):
        project.send("raw", [{"n": 91}]).step()


def test_a_record_that_breaks_its_definition_is_rejected_alone(project: Project) -> None:
    project.change("silver/visits.py", '"n >= 0"', '"6 / n > 0"')
    found = apply(project, VISITS, [{"n": 1}, {"n": 0}, {"n": 2}])
    assert [row["n"] for row in found.rows] == [1, 2]
    assert [row["rules"] for row in found.rejected] == [["error"]]


def test_views_and_processes_are_called_with_rows(project: Project) -> None:
    project.write(
        {
            "conf/reference/users.csv": "user,name\nann,Ann\n",
            "conf/reference/users.ddl": "user STRING, name STRING\n",
            "gold/best.sql": "CREATE MATERIALIZED VIEW gold.best "
            "TBLPROPERTIES ('headwater.keys' = 'name') AS SELECT name, total, count(n) AS visits "
            "FROM gold.totals JOIN silver.visits USING (user) "
            "JOIN reference.users USING (user) GROUP BY name, total",
            "gold/firsts.py": '''import headwater as hw
@hw.process(source="silver.visits", keys=["user"], event_time="at", delay="10 seconds",
            columns="user STRING, at TIMESTAMP", state="seen BOOLEAN")
def firsts(row, user):
    """The first visit of each."""
    if user.state is None:
        yield {"user": row["user"], "at": user.now}
    user.state = {"seen": True}
''',
        }
    )
    rows = {TOTALS: [{"user": "ann", "total": 7}], VISITS: [{"user": "ann", "n": 3}, {"user": "bob", "n": 4}]}
    assert apply(project, "gold.best", rows).rows == [{"name": "Ann", "total": 7, "visits": 1}]
    times = [project.clock.now() + timedelta(seconds=n) for n in range(3)]
    made = apply(project, "gold.firsts", [{"user": "ann", "at": at} for at in times])
    assert made.rows == [{"user": "ann", "at": times[0]}]
    for name, given, says in (
        ("gold.firsts", [{"usr": "ann"}], r"a row for silver\.visits has usr"),
        ("gold.firsts", [{"user": "ann", "at": "soon"}], r"a row for silver\.visits does not fit"),
        ("gold.best", {TOTALS: [{"users": "ann"}]}, r"a row for gold\.totals has users; known: user, total"),
        (TOTALS, [b"x"], "rows of a table are written as"),
        (
            VISITS,
            {"user": "ann"},
            r"silver\.visits reads no user; give a list of rows, or rows of bronze\.raw",
        ),
        (TOTALS, {"silver.vists": []}, r"gold\.totals reads no silver\.vists"),
        (RAW, [], r"bronze\.raw is no definition that can be called; known: silver\.visits"),
    ):
        with pytest.raises(ProjectError, match=says):
            apply(project, name, given)  # type: ignore[arg-type]


def test_what_a_process_gives_fits_its_columns(project: Project) -> None:
    text = """import headwater as hw
@hw.process(source="silver.visits", keys=["user"], event_time="at", delay="10 seconds",
            columns="user STRING, n INT", state="seen BOOLEAN")
def firsts(row, user):
    yield {"user": row["user"], "n": GIVEN}
"""
    visit = {"user": "ann", "at": project.clock.now()}
    for given, made in (("row['n']", None), ("2.0", 2), ("2.5", ""), ("'two'", "")):
        project.write({"gold/firsts.py": text.replace("GIVEN", given)})
        if made == "":
            with pytest.raises(FlowError, match=r"gold\.firsts gives a row that does not fit"):
                apply(project, "gold.firsts", [visit])
        else:
            assert apply(project, "gold.firsts", [visit]).rows == [{"user": "ann", "n": made}]


def test_any_table_can_be_written_by_its_stored_columns(project: Project) -> None:
    project.append(VISITS, [{"user": "ann", "n": 1}, {"user": "ann", "n": 2}]).step(TOTALS)
    assert project.rows(TOTALS) == [("ann", 3)]
    project.send("raw", [{"user": "bob", "n": 5}]).step()  # from where the flow above was
    assert project.rows(TOTALS) == [("ann", 3), ("bob", 5)]
    project.append(TOTALS, [{"user": "ann", "total": 4}, {"user": "bob", "total": 1}])  # a partial result
    assert project.rows(TOTALS).dicts() == [{"user": "ann", "total": 7}, {"user": "bob", "total": 6}]
    with pytest.raises(ProjectError, match=r"a row for silver\.visits does not fit its columns"):
        project.append(VISITS, [{"n": "one"}])


def test_what_is_no_list_of_records_is_not_sent(project: Project) -> None:
    for records in ({"user": "ann"}, "text", b"bytes", Record("text")):
        with pytest.raises(ProjectError, match=r"records are sent as a list, .* write send"):
            project.send("raw", records)  # type: ignore[arg-type]
    project.send("raw", [Record({"n": 1}, offset=5), Record({"n": 2}, offset=3), {"n": 3}])
    assert project.rows(RAW, '"offset"') == [(3,), (5,), (6,)]


def test_a_time_without_a_zone_is_in_utc(project: Project) -> None:
    project.clock.set(datetime(2026, 1, 1, 12))
    assert project.clock.now() == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_typing_error_is_no_empty_table(project: Project) -> None:
    assert project.rows(TOTALS) == project.rows(f"{MINUTES}__state") == []
    with pytest.raises(QueryError, match=r"gold\.total"):
        project.rows("gold.total")
    for ask in (project.step, project.end, project.flow, project.batches, project.target):
        with pytest.raises(ProjectError, match=r"unknown table 'gold\.total'; .*gold\.totals"):
            ask("gold.total")
    with pytest.raises(ProjectError, match="unknown table"):
        project.append("gold.total", [{"n": 1}])


def test_what_needs_a_broker_says_so(tmp_path: Path, interpreted: SparkSession) -> None:
    out = "CREATE STREAMING TABLE gold.out TBLPROPERTIES ('headwater.publish' = 'out') AS "
    out += "SELECT * FROM STREAM silver.visits"
    Project(FILES, tmp_path / "a")
    project = Project(str(tmp_path / "a"), str(tmp_path / "b")).write({"gold/out.sql": out})
    for name in (RAW, *project.definitions.sinks):
        for do in (project.step, project.end):
            with raises_code("TEST_WITHOUT_BROKER", match=name):
                do(name)


def test_files_are_analysed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interpreted: SparkSession
) -> None:
    Project(FILES, tmp_path / "a").restart()

    def never(*_: object) -> None:
        raise AssertionError("analysed again")

    monkeypatch.setattr(analysis, "_analysed", never)
    project = Project(FILES, tmp_path / "b").restart()
    project.send("raw", [{"user": "ann", "n": 1}]).step().restart().send(
        "raw", [{"user": "ann", "n": 1}]
    ).step()
    assert project.rows(TOTALS) == [("ann", 2)]
    with pytest.raises(AssertionError, match="analysed again"):
        project.change("gold/totals.sql", "sum(n)", "max(n)").restart()


def test_a_view_of_the_clock_follows_it_whatever_its_trigger(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    view = """CREATE MATERIALIZED VIEW gold.old
        TBLPROPERTIES ('headwater.keys' = 'user', 'headwater.trigger' = '1 hour') AS
        SELECT user FROM silver.visits CROSS JOIN reference.clock WHERE at < now - INTERVAL 1 MINUTE"""
    project = Project({**FILES, "gold/old.sql": view}, tmp_path, at="2026-01-01T12:00:00Z")
    project.send("raw", [{"user": "ann", "n": 1, "at": "2026-01-01T12:00:00Z"}]).step()
    assert project.rows("gold.old") == []
    project.clock.advance("61s")
    assert project.step().rows("gold.old") == [("ann",)]
    project.clock.set("2026-01-01T12:00:30Z")
    assert project.step().rows("gold.old") == []


def test_a_step_takes_files_and_feeds_sinks(project: Project) -> None:
    project.write(
        {
            "in/a.json": '{"n": 1}\n{"n": 2}\n',
            "bronze/paid.py": "import headwater as hw\npaid = hw.files('in/*.json')\n",
            "silver/paid.py": """import headwater as hw
from headwater.connectors.sinks import Sink
@hw.table(source="bronze.paid", decode=hw.json("n BIGINT"))
def paid(raw):
    return raw
class Mine(Sink):
    got = []
    def open(self, table):
        return None
    def write(self, changes):
        self.got += [row["n"] for _, rows in changes.batches() for row in rows.to_pylist()]
        assert self.got in ([1, 2], [1, 2, 3])
    def close(self):
        pass
mine = hw.sink("silver.paid", Mine, name="mine")
""",
        }
    )
    project.step().step("silver.paid->mine")
    assert project.rows("silver.paid", "n") == [(1,), (2,)]
    assert [batch.rows_out for batch in project.batches("silver.paid->mine")] == [2]
    (project.root / "in" / "b.json").write_text('{"n": 3}')
    project.step().step("silver.paid->mine", "silver.paid->mine")
    assert project.rows("silver.paid", "n") == [(1,), (2,), (3,)]
    assert [batch.rows_out for batch in project.batches("silver.paid->mine")] == [2, 1]


def test_a_rebuild_and_a_copy_go_on(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    project.send("raw", [{"user": "ann", "n": 1}, {"user": "ann", "n": 4}]).step()
    other = project.copied(tmp_path_factory.mktemp("copy") / "project")
    project.change("gold/totals.sql", "sum(n)", "max(n)")
    assert project.rebuild(TOTALS).swapped
    project.send("raw", [{"user": "ann", "n": 3}]).step()
    other.send("raw", [{"user": "ann", "n": 3}]).step()
    assert project.rows(TOTALS) == [("ann", 4)] and other.rows(TOTALS) == [("ann", 8)]
    same = other.rebuild(TOTALS)  # with flows of the run at work
    other.send("raw", [{"user": "ann", "n": 1}]).step()
    assert same.swapped and other.rows(TOTALS) == [("ann", 9)]


def test_the_reference_project_takes_what_its_generator_makes(interpreted: SparkSession) -> None:
    project = Project(ROOT).generate("sales", 300, seed=5, faults=Faults(malformed=0.05, duplicate=0.05))
    project.step("silver.purchases")
    ledger = project.ledger
    assert ledger.produced == 300 == len(project.rows("bronze.purchases", "1"))
    assert sum(ledger.malformed.values()) == len(project.rows("quarantine.silver_purchases", "1")) > 0
    assert len(project.rows("silver.purchases", "1")) == ledger.well_formed - ledger.faults["duplicate"]
    again = Project(ROOT).generate("sales", 300, seed=5, faults=Faults(malformed=0.05, duplicate=0.05))
    place = '"partition", "offset", "key", "value"'
    assert_same(again.rows("bronze.purchases", place), project.rows("bronze.purchases", place))


def test_tables_that_differ_say_how() -> None:
    left = [{"user": "ann", "total": 1.0}, {"user": "bob", "total": 2.0}, {"user": "eve", "total": 3.0}]
    right = [
        {"user": "ann", "total": 1.0 + 1e-15},
        {"user": "bob", "total": 2.5},
        {"user": "kim", "total": 4.0},
    ]
    assert_same(left, list(reversed(left)))
    with pytest.raises(AssertionError) as e:
        assert_same(left, right, keys=["user"])
    assert str(e.value).splitlines() == [
        "the tables differ: left has 3 rows, right 3",
        "  of user='bob': total is 2.0 on the left, 2.5 on the right",
        "  only left has user='eve', total=3.0",
        "  only right has user='kim', total=4.0",
    ]
    with pytest.raises(AssertionError, match="left has 2 rows, right 1\n  only left has n=1"):
        assert_same(pa.table({"n": [1, 1]}), pa.table({"n": [1]}))  # as often, too
    with pytest.raises(AssertionError, match="only right has the column m"):
        assert_same(pa.table({"n": [1]}), pa.table({"n": [1], "m": [1]}))
    with pytest.raises(
        AssertionError, match=r"only left has n=0\n  only left has n=1\n  … of 5 rows that right lacks"
    ):
        assert_same([{"n": n} for n in range(5)], [], limit=2)
    with pytest.raises(AssertionError, match="m"):  # which its first row does not say
        assert_same([{"n": 1}, {"n": 2, "m": 3}], [{"n": 1}, {"n": 2}])
