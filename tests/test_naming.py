"""Names without a layer, views that are kept nowhere, and expectations of a definition."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_several import RAW, TABLE, made

from headwater import testing
from headwater.errors import NOWHERE, Where
from headwater.errors.several import Collected
from headwater.planner import analysis
from headwater.project import naming
from headwater.project.definitions import Alert, Declaration, Json, Query, Table, View
from headwater.project.load import Project, load_project
from headwater.project.rule import expected
from headwater.project.suite import Suite, fingerprint, joined
from headwater.project.views import expanded

VIEW = "CREATE MATERIALIZED VIEW {} AS SELECT * FROM {}"


def load(root: Path, files: dict[str, str]) -> Project:
    return load_project(made(root, {"bronze/raw.py": RAW, "silver/a.py": TABLE.format("raw", "a"), **files}))


def test_what_has_no_layer_takes_the_folders_and_reads_the_only_one_or_the_one_beside_it(
    tmp_path: Path,
) -> None:
    files = {
        "silver/b.sql": "CREATE STREAMING TABLE b AS SELECT * FROM STREAM a",
        "silver/twice.sql": "CREATE STREAMING TABLE twice AS SELECT * FROM STREAM LIVE.a",
        "gold/a.sql": "CREATE STREAMING TABLE a AS SELECT n, count(*) AS c FROM STREAM a GROUP BY n",
        "gold/twice.sql": VIEW.format("twice", "a"),
        "gold/both.sql": "CREATE MATERIALIZED VIEW both AS SELECT x.n FROM b x JOIN silver.b y USING (n)",
        "gold/fed.sql": "CREATE STREAMING TABLE fed",
        "gold/feeds.sql": "CREATE FLOW feeds AS INSERT INTO fed BY NAME SELECT n FROM STREAM b",
    }
    project = load(tmp_path, files)
    assert {name: table.sources for name, table in project.tables.items()} == {
        "silver.a": ("bronze.raw",),
        "silver.b": ("silver.a",),
        "silver.twice": ("silver.a",),
        "gold.a": ("silver.a",),
        "gold.twice": ("gold.a",),
        "gold.both": ("silver.b",),
        "gold.fed": ("silver.b",),
    }
    assert project.tables["gold.both"].inputs == ("silver.b", "silver.b")
    assert [flow.name for flow in project.tables["gold.fed"].flows] == ["gold.feeds"]


def test_one_of_several_layers_is_to_be_said(tmp_path: Path) -> None:
    files = {
        "bronze/a.py": "import headwater as hw\na = hw.topic('a')\n",
        "gold/c.sql": VIEW.format("c", "a"),
    }
    with raises_code("NAME_AMBIGUOUS", table="gold.c", file="gold/c.sql") as refused:
        load(tmp_path, files)
    assert "reads 'a', and there are bronze.a and silver.a; write one of them" in str(refused.value)


def test_a_name_that_there_is_not_is_said_as_it_is_written(tmp_path: Path) -> None:
    with raises_code("UNKNOWN_SOURCE", table="gold.c") as refused:
        load(tmp_path, {"gold/c.sql": VIEW.format("c", "orders")})
    assert "reads 'orders', which is unknown" in str(refused.value)


def test_python_and_tables_of_final_windows_are_found_too() -> None:
    def table(name: str, *sources: str, **more: object) -> Table:
        return Table(name=name, sources=sources, **more)  # type: ignore[arg-type]

    alert = Alert(name="silver.bell", topic="t", source="x", decode=Json("n INT"), function=lambda x: x)
    declared: list[Declaration] = [
        table("silver.x", "hosts"),
        table("silver.y", "x_final", into="x"),
        table("gold.z", "y", "x"),
        alert,
    ]
    wrong = Collected()
    x, y, z, bell = naming.resolved(declared, ["reference.hosts"], wrong)
    wrong.check()
    assert isinstance(x, Table) and x.sources == ("reference.hosts",)
    assert isinstance(y, Table) and (y.sources, y.into) == (("silver.x_final",), "silver.x")
    assert isinstance(z, Table) and z.sources == ("y", "silver.x")  # a flow is no table
    assert isinstance(bell, Alert) and bell.source == "silver.x"


def _view(name: str, *reads: str, streams: tuple[str, ...] = (), time: str | None = None) -> View:
    delay = "1 minute" if time else None
    sql = Query(text="", streams=streams)
    return View(name=name, sources=reads, sql=sql, event_time=time, delay=delay)


def test_a_table_has_the_views_that_it_reads_and_what_these_follow_from() -> None:
    views = {
        "silver.near": _view("silver.near", "silver.far", "reference.r"),
        "silver.far": _view("silver.far", "silver.a", streams=("silver.a",), time="at"),
        "silver.other": _view("silver.other", "silver.b", "reference.r"),
    }
    table = Table(name="gold.t", sources=("silver.near",), sql=Query(text="", streams=("silver.near",)))
    found = expanded(table, views, ["reference.r"])
    assert (found.sources, found.inputs) == (("silver.a", "reference.r"), ("silver.near",))
    assert [view.name for view in found.views] == ["silver.far", "silver.near"]
    assert found.sql is not None and found.sql.streams == ("silver.a",)
    assert (found.event_time, found.delay) == ("at", "1 minute")
    plain = Table(name="gold.p", sources=("silver.other",), sql=Query(text="", streams=("silver.other",)))
    streamed = expanded(plain, views, ["reference.r"])
    assert streamed.sql is not None and streamed.sql.streams == ("silver.b",)
    whole = Table(name="gold.v", sources=("silver.near",), sql=Query(text="", streams=()), view=True)
    refused = expanded(whole, views, ["reference.r"])
    assert refused.sql is not None and refused.sql.streams == ("silver.a",)


def test_views_do_not_read_each_other_in_a_circle() -> None:
    views = {"silver.x": _view("silver.x", "silver.y"), "silver.y": _view("silver.y", "silver.x")}
    with raises_code("DEFINITIONS_CYCLE") as refused:
        expanded(Table(name="gold.t", sources=("silver.x",)), views, [])
    assert "silver.x → silver.y → silver.x" in str(refused.value)


def test_expectations_of_a_definition_join_those_of_its_suite() -> None:
    rules = [
        expected("positive", "n > 0", "drop", Where.of("silver/t.sql", "silver.t")),
        expected("named", "name IS NOT NULL", "warn", NOWHERE),
    ]
    table = Table(name="silver.t", sources=("silver.s",), expectations=tuple(rules))
    alone = joined(None, table)
    assert [(rule.id, rule.action) for rule in alone.rules] == [("positive", "drop"), ("named", "warn")]
    assert alone.document["expectations"][0] == {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE (n > 0) IS NOT TRUE"},
        "meta": {"action": "drop"},
        "id": "positive",
    }
    with raises_code("EXPECTATION_TWICE") as refused:
        joined(alone, table)
    assert "positive" in str(refused.value)
    other = Suite("silver.t", Path("x"), document={"name": "x", "expectations": [{"type": "z"}]})
    both = joined(other, table)
    assert len(both.document["expectations"]) == 3 and fingerprint(both) != fingerprint(other)
    with raises_code("EXPECTATION_INVALID"):
        expected("malformed", "n > 0", "warn", NOWHERE)


@pytest.mark.parametrize("action", ["drop", "warn", "fail"])
def test_a_condition_that_is_false_or_null_fails_a_row(interpreted: SparkSession, action: str) -> None:
    from headwater.quality import predicate

    rule = expected("positive", "n > 0 AND '{n}' <> '}{'", action, NOWHERE)  # type: ignore[arg-type]
    rows = interpreted.createDataFrame([(1,), (0,), (None,)], "n INT")
    failed = rows.where(predicate.failed(rule, rows.schema)).collect()
    assert {row.n for row in failed} == {0, None}


def test_a_project_with_names_without_layers_is_analysed(tmp_path: Path, interpreted: SparkSession) -> None:
    files = {
        "bronze/raw.py": RAW,
        "silver/a.py": TABLE.format("raw", "a"),
        "gold/n.sql": "CREATE STREAMING TABLE n AS SELECT n, count(*) AS c FROM STREAM a GROUP BY n",
    }
    case = testing.Project(files, tmp_path, spark=interpreted)
    assert analysis.analyse(interpreted, case.definitions)["gold.n"].keys == ("n",)
