"""Whole tables judged by Great Expectations: what is kept, what is shown, and what is left out."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater import query
from headwater.cli import app
from headwater.errors import HeadwaterError
from headwater.errors.codes import Code
from headwater.operations import maintain
from headwater.operations.validation import docs, gx, results, validate
from headwater.operations.validation.results import Outcome, Validation
from headwater.operations.validation.validate import Validated
from headwater.planner import analysis
from headwater.project.load import load_project
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "host-of-somebody"
SILVER = '''import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("host STRING, usage DOUBLE"))
def readings(raw):
    """One row per reading."""
    return raw
'''
GOLD = """CREATE STREAMING TABLE gold.by_host AS
SELECT host, avg(usage) AS usage FROM STREAM silver.readings GROUP BY host"""
RAW = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
READINGS = pa.schema([("host", pa.string()), ("usage", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])
BY_HOST = pa.schema(
    [("host", pa.string()), ("usage", pa.float64()), ("_partial", pa.struct([("n", pa.int64())]))]
)


def expect(kind: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "severity": severity}


SUITES: dict[str, list[dict[str, Any]]] = {
    "bronze.raw": [
        expect("compound_columns_to_be_unique", column_list=["partition", "offset"]),
        expect("column_values_to_not_be_null", column="value", mostly=0.5),
        expect("table_row_count_to_be_between", min_value=1),
        expect("column_values_to_be_between", "warning", column="value", min_value=1),
    ],
    "silver.readings": [
        expect("column_values_to_not_be_null", column="host"),
        {**expect("column_values_to_be_between", "warning", column="usage", max_value=100), "id": "percent"},
        expect("column_values_to_be_in_set", "info", column="host", value_set=["a"]),
        expect("column_values_to_match_like_pattern", "warning", column="host", like_pattern="%"),
    ],
    "gold.by_host": [
        expect("table_columns_to_match_set", column_set=["host", "usage"]),
        expect("column_values_to_be_unique", column="host"),
        expect("column_max_to_be_between", column="usage", min_value=1, max_value=100),
        expect("column_distinct_values_to_be_in_set", "warning", column="host", value_set=["a"]),
        expect(
            "column_quantile_values_to_be_between",
            column="usage",
            quantile_ranges={"quantiles": [0.5], "value_ranges": [[0, 100]]},
        ),
    ],
}


def append(root: Path, name: str, rows: list[dict[str, Any]], schema: pa.Schema, **properties: str) -> None:
    """Commit rows to a table of the project's lake."""
    target = Target(Lake(root / ".headwater" / "lake").create(name, schema, properties=properties))
    sequence = target.last(name) + 1
    folder = target.place.path / f"{sequence:012d}-test"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "part.parquet")
    target.append([f"{folder.name}/part.parquet"], Identity(name, 1, sequence, {}))


def make(root: Path, suites: dict[str, list[dict[str, Any]]]) -> Path:
    """A project with these suites, and a lake that holds nothing."""
    for folder in ("bronze", "silver", "gold", "quality", "conf"):
        (root / folder).mkdir(parents=True)
    (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
    (root / "bronze" / "raw.py").write_text("import headwater as hw\nraw = hw.topic('raw')\n")
    (root / "silver" / "readings.py").write_text(SILVER)
    (root / "gold" / "by_host.sql").write_text(GOLD)
    for name, expectations in suites.items():
        suite = {"name": name, "expectations": expectations}
        (root / "quality" / f"{name}.json").write_text(json.dumps(suite))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("project") / "p", SUITES)
    append(root, "bronze.raw", [{"partition": 0, "offset": n, "value": b"{}"} for n in range(3)], RAW)
    hosts = [("a", 1.0), ("a", 99.0), (SECRET, 101.0)]
    readings = [{"host": host, "usage": usage, "at": T0} for host, usage in hosts]
    append(root, "silver.readings", readings, READINGS)
    rows = [{"host": host, "usage": 50.0, "_partial": {"n": 2}} for host in ("a", SECRET)]
    append(root, "gold.by_host", rows, BY_HOST, **{"delta.enableChangeDataFeed": "true"})
    return root


@pytest.fixture(scope="module", autouse=True)
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """Queries are not compiled here, which takes longer than a few rows do."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def done(spark: SparkSession, root: Path) -> Validated:
    """All tables, validated once."""
    return validate.run(load_project(root), docs=root / "docs")


def said(done: Validated, table: str) -> dict[str, Outcome]:
    return {o.expectation: o for v in done.validations if v.table == table for o in v.outcomes}


def command(root: Path, *arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["quality", *arguments, "--project", str(root)])
    if isinstance(ran.exception, HeadwaterError):
        raise ran.exception
    assert ran.stderr == ""
    return ran.exit_code, ran.stdout


# What is judged


def test_tables_of_every_layer_are_judged_as_great_expectations_does(done: Validated) -> None:
    assert [v.table for v in done.validations] == ["bronze.raw", "silver.readings", "gold.by_host"]
    bronze = said(done, "bronze.raw")
    assert [o.status for o in bronze.values()] == ["passed", "passed", "passed", "error"]
    silver = said(done, "silver.readings")
    assert silver["values_to_not_be_null(host)"].status == "passed"
    percent = silver["percent"]
    assert (percent.status, percent.action, percent.element_count, percent.unexpected_count) == (
        "failed",
        "warn",
        3,
        1,
    )
    gold = said(done, "gold.by_host")
    assert [o.status for o in gold.values()] == ["passed", "passed", "passed", "failed", "passed"]
    assert done.passed


def test_what_great_expectations_cannot_judge_on_spark_is_an_error(root: Path, done: Validated) -> None:
    like = said(done, "silver.readings")["values_to_match_like_pattern(host)"]
    assert like.status == "error" and like.message is not None
    assert like.message == (
        f"silver.readings: {root / 'quality/silver.readings.json'}: expectation 4: "
        "expect_column_values_to_match_like_pattern can't be judged on Spark; take another expectation"
    )
    ordered = said(done, "bronze.raw")["values_to_be_between(value)"].message or ""
    assert ordered.startswith(
        f"bronze.raw: {root / 'quality/bronze.raw.json'}: expectation 4: expect_column_"
    )
    assert "Spark says DATATYPE_MISMATCH" in ordered and ordered.endswith(
        "; let it fit the type and the values of its column"
    )


def test_partial_results_are_no_columns(done: Validated) -> None:
    columns = said(done, "gold.by_host")["table_columns_to_match_set(host, usage)"]
    assert json.loads(columns.observed_value or "") == ["host", "usage"]


def test_actions_of_tables_that_no_flow_judges_are_warn_or_fail(done: Validated) -> None:
    assert [o.action for o in said(done, "bronze.raw").values()] == ["fail", "fail", "fail", "warn"]
    assert {o.action for o in said(done, "gold.by_host").values()} == {"fail", "warn"}
    assert {o.action for o in said(done, "silver.readings").values()} == {"quarantine", "warn"}


def test_nothing_stays_persisted(spark: SparkSession, done: Validated) -> None:
    persisted = [str(rdd.name()) for rdd in spark.sparkContext._jsc.getPersistentRDDs().values()]
    assert [name for name in persisted if not name.startswith("Delta Table State")] == []  # Delta's own
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_an_earlier_version_that_fails_ends_the_command_with_1(
    spark: SparkSession, root: Path, tmp_path: Path, done: Validated
) -> None:
    code, out = command(root, "run", "bronze.raw", "--at", "0", "--json", "--docs", str(tmp_path / "docs"))
    found = json.loads(out)
    assert (code, found["passed"]) == (1, False)
    assert {(row["version"], row["status"]) for row in found["results"] if "count" in row["expectation"]} == {
        (0, "failed")
    }


# What is kept


def test_results_are_a_table_of_the_lake(root: Path, done: Validated) -> None:
    sql = f"SELECT * FROM ops.quality_results WHERE run_id = '{done.id}'"
    found = query.run(sql, project=root)
    assert found.columns == tuple(results.COLUMNS.names)
    rows = {(row[1], row[4]): dict(zip(found.columns, row, strict=True)) for row in found.rows}
    assert len(rows) == len(found.rows) == sum(map(len, SUITES.values()))
    percent = rows["silver.readings", "percent"]
    assert (percent["success"], percent["unexpected_count"], percent["version"]) == (False, 1, 1)
    assert percent["unexpected_percent"] == pytest.approx(100 / 3)
    assert percent["validated_at"].utcoffset() == timedelta(0) and percent["seconds"] > 0
    assert json.loads(percent["kwargs"]) == {"column": "usage", "max_value": 100}
    assert rows["silver.readings", "values_to_match_like_pattern(host)"]["success"] is None
    assert rows["bronze.raw", "table_row_count_to_be_between()"]["observed_value"] == "3"


def test_no_value_of_a_row_is_kept(root: Path, done: Validated) -> None:
    kept = query.run("SELECT * FROM ops.quality_results", project=root).rows
    assert SECRET not in str(kept) and SECRET not in str(done)
    for file in (root / "docs").rglob("*.*"):
        assert file.is_dir() or SECRET not in file.read_text(encoding="utf-8"), file


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("expect_column_mean_to_be_between", 1.5, 1.5),
        ("expect_column_max_to_be_between", "2026-01-01T00:00:00", "2026-01-01T00:00:00"),
        ("expect_column_max_to_be_between", "a name", "a text"),
        ("expect_column_distinct_values_to_be_in_set", ["a", "b"], "2 values"),
        ("expect_column_values_to_be_of_type", "StringType", "StringType"),
        ("expect_table_columns_to_match_set", ["host"], ["host"]),
    ],
)
def test_of_what_was_observed_no_text_of_a_row_is_kept(kind: str, value: Any, kept: Any) -> None:
    assert gx.observed(kind, value) == kept


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (
            "[CAST_INVALID_INPUT] The value 'Jo Doe' of the type \"STRING\" cannot be cast\n at line 1",
            "can't be computed: Spark says CAST_INVALID_INPUT; let it fit",
        ),
        (
            'Error: The column "hots" in BatchData does not exist.',
            "a column hots, which the table has not; mend its name",
        ),
        ("list index out of range: Jo Doe", "made Great Expectations fail; mend its arguments, or"),
    ],
)
def test_of_what_an_expectation_raises_no_text_is_kept(raised: str, says: str) -> None:
    said = gx._unable(raised)
    assert says in said and "Jo Doe" not in said and "\n" not in said


def test_samples_show_failing_values_in_the_data_docs_alone(
    spark: SparkSession, root: Path, tmp_path: Path, done: Validated
) -> None:
    ran = validate.run(load_project(root), "gold.by_host", docs=tmp_path / "docs", samples=True)
    assert any(SECRET in file.read_text() for file in (tmp_path / "docs" / "validations").rglob("*.html"))
    assert SECRET not in str(query.run("SELECT * FROM ops.quality_results", project=root).rows)
    distinct = said(ran, "gold.by_host")["distinct_values_to_be_in_set(host)"]
    assert distinct.status == "failed" and SECRET not in str(distinct)


def test_a_run_is_one_commit_and_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    def add(number: int) -> None:
        results.append(Lake(tmp_path), f"run-{number}", [validation(f"silver.t{number}")])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(24)))
    place = Lake(tmp_path).place(results.TABLE)
    assert log.head(place.path) == 24
    assert sum(commit.added[0].rows for commit in log.commits(place.path, after=0, upto=24)) == 24
    assert (place.path / "_delta_log" / "_last_checkpoint").exists()


@pytest.mark.parametrize("retention", ["", "tables: {ops.quality_results: {retention: 1ms}}"])
def test_what_runs_have_found_is_maintained_and_goes_by_its_age(tmp_path: Path, retention: str) -> None:
    for folder in ("conf", "gold"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf" / "local.yaml").write_text(f"maintain: {{keep: 0s, {retention}}}\n")
    project = load_project(tmp_path)
    lake = Lake(project.conf.lake)
    for number in range(25):
        results.append(lake, f"run-{number}", [validation(f"silver.t{number % 5}")])
        lake.create(f"gold.t{number}", pa.schema([("n", pa.int64())]), properties={})
    place, places = lake.place(results.TABLE), lake.places()
    held = Target(place).held(results.COLUMNS).to_pylist()
    (done,) = maintain.maintain(project, [results.TABLE])
    assert (done.table, done.compacted, done.expired) == (results.TABLE, *((0, 25) if retention else (24, 0)))
    assert results.append(lake, "run-25", [validation("silver.t0")]) == Target(place).version
    kept = Target(place).held(results.COLUMNS).to_pylist()
    assert len(kept) == (1 if retention else 26) and (retention or all(row in kept for row in held))
    assert len(results.dates(project)) == (1 if retention else 5)
    assert log.first(lake.catalog) > 0 and Lake(lake.root).places() == places
    assert [one.table for one in maintain.maintain(project)] == [results.TABLE]
    assert len(list(lake.catalog.glob("*.parquet"))) <= len(places)
    with raises_code("UNKNOWN_TABLE", table="ops.other"):
        maintain.maintain(project, ["ops.other"])


def test_only_what_is_named_is_maintained(tmp_path: Path) -> None:
    for name, text in (
        ("conf/local.yaml", ""),
        ("bronze/raw.py", "import headwater as hw\nraw = hw.topic('r')"),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    project = load_project(tmp_path)
    lake = Lake(project.conf.lake)
    for name in ("bronze.raw", "ops.other"):
        Target(lake.create(name, pa.schema([("n", pa.int64())]), properties={})).append(
            [], Identity(name, 1, 1, {})
        )
    results.append(lake, "run", [validation("silver.t")])
    for names in (["bronze.raw"], ["ops.other"], ["bronze.raw", "ops.other"], [results.TABLE]):
        assert [one.table for one in maintain.maintain(project, names)] == names
    assert {one.table for one in maintain.maintain(project)} == {"bronze.raw", "ops.other", results.TABLE}


def test_show_has_the_last_results_and_starts_no_spark(
    root: Path, done: Validated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.runtime.sessions.start", None)
    code, out = command(root, "show", "--json")
    rows = json.loads(out)["results"]
    assert code == 0 and [row["table_name"] for row in rows] == sorted(
        [row["table_name"] for row in rows], key=list(SUITES).index
    )
    assert len({(row["table_name"], row["run_id"]) for row in rows}) == 3
    text = command(root, "show", "silver.readings")[1]
    assert "1 of 3 unexpected" in text and "gold.by_host" not in text


# The Data Docs


class Page(HTMLParser):
    """What a page loads and where its links go."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.policy = ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag != "a":
            self.loads += [value for name in ("src", "href", "data") if (value := found.get(name))]
        elif found.get("href"):
            self.links.append(str(found["href"]))
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(found["content"])


def pages(site: Path) -> Iterator[tuple[Path, Page]]:
    for file in site.rglob("*.html"):
        yield file, Page(file)


def test_pages_load_nothing_and_their_links_lead_to_pages(root: Path, done: Validated) -> None:
    found = dict(pages(root / "docs"))
    assert len(found) == 1 + 3 + 3
    for file, page in found.items():
        assert page.loads == [] and page.policy.startswith("default-src 'none'"), file
        text = file.read_text(encoding="utf-8")
        assert "url(" not in text and "@import" not in text and " onclick=" not in text
        for link in page.links:
            assert link.startswith("#") or (file.parent / link).resolve() in found, (file, link)
    assert len([link for link in found[root / "docs" / "index.html"].links if "validations/" in link]) > 3


def test_earlier_validations_stay_as_many_as_are_kept(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for number in range(3):
        at = [T0 + timedelta(hours=number * 5 + n) for n in range(5)]
        docs.build(site, f"run-{number:06d}", [validation("silver.t", n) for n in at])
    assert len(list(site.glob("validations/**/*.html"))) == docs.KEPT
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["site"]


def test_builds_at_once_take_turns_and_what_a_killed_one_left_goes(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (tmp_path / ".site.new-00000000" / "results").mkdir(parents=True)
    tables = ["silver.a", "silver.b", "silver.c"]
    at_once = threading.Barrier(len(tables))

    def build(table: str) -> Path:
        at_once.wait()
        return docs.build(site, f"run-{table}", [validation(table)])

    with ThreadPoolExecutor(len(tables)) as pool:
        assert set(pool.map(build, tables)) == {site / "index.html"}
    assert all(table in (site / "index.html").read_text() for table in tables)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".site.lock", "site"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with raises_code("FOLDER_TAKEN"):
        docs.build(tmp_path, "run", [])
    assert (tmp_path / "thesis.txt").exists()


def validation(table: str, at: datetime = T0) -> Validation:
    """What judging a table might have found."""
    config = {**expect("column_values_to_not_be_null", column="x"), "meta": {}, "id": "rule"}
    result = {
        "success": True,
        "expectation_config": config,
        "result": {"element_count": 1, "unexpected_count": 0, "unexpected_percent": 0.0},
        "exception_info": {"raised_exception": False, "exception_message": None, "exception_traceback": None},
        "meta": {},
    }
    document = {
        "success": True,
        "results": [result],
        "suite_name": table,
        "suite_parameters": {},
        "statistics": {
            "evaluated_expectations": 1,
            "successful_expectations": 1,
            "unsuccessful_expectations": 0,
            "success_percent": 100.0,
        },
        "meta": {"great_expectations_version": "1"},
        "id": None,
    }
    suite = {"name": table, "expectations": [expect("column_values_to_not_be_null", column="x")]}
    outcome = Outcome("rule", config["type"], "{}", "warn", "passed", 1, 0, 0.0, None, None)
    return Validation(table, 1, 0, "0", at, 0.1, (outcome,), {"result": document, "suite": suite})


# What is refused


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "silver.reading"], "UNKNOWN_TABLE", "unknown table 'silver.reading'"),
        (["run", "--at", "0"], "VERSION_AMBIGUOUS", "--at 0 is the past of one table; name it"),
        (["run", "bronze.raw", "--at", "9"], "UNKNOWN_VERSION", "bronze.raw has no version 9; it has 0 to 1"),
        (["run", "bronze.raw", "--at", "2020-01-01"], "UNKNOWN_VERSION", "bronze.raw begins at"),
        (["show", "bronze.ra"], "UNKNOWN_TABLE", "unknown table 'bronze.ra'"),
    ],
)
def test_what_was_asked_wrongly_ends_with_2(
    root: Path, done: Validated, arguments: list[str], code: Code, says: str
) -> None:
    with raises_code(code) as refused:
        command(root, *arguments)
    assert says in str(refused.value) and refused.value.exit_code == 2 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("suites", "arguments", "code", "says"),
    [
        ({}, ["run"], "SUITE_MISSING", "quality has no suite; run: headwater quality suggest"),
        (
            {},
            ["run", "bronze.raw"],
            "SUITE_MISSING",
            "bronze.raw has no suite quality/bronze.raw.json; run: headwater quality",
        ),
        (
            {"bronze.raw": []},
            ["run"],
            "TABLE_EMPTY",
            "bronze.raw: none holds anything yet; run: headwater run --once",
        ),
        (
            {"bronze.raw": []},
            ["run", "bronze.raw"],
            "TABLE_EMPTY",
            "bronze.raw holds nothing yet; run: headwater run",
        ),
        ({}, ["show"], "NOT_VALIDATED", "nothing has been validated yet; run: headwater quality run"),
        (
            {
                "bronze.raw": [
                    {**expect("column_values_to_not_be_null", column="key"), "meta": {"action": "drop"}}
                ]
            },
            ["run"],
            "ACTION_NOT_POSSIBLE",
            "raw.json: expectation 1: values_to_not_be_null(key) has the action drop, but rows of bronze.raw "
            "are judged after they are written; write warn or fail",
        ),
    ],
)
def test_what_a_project_lacks_is_said(
    tmp_path: Path, suites: dict[str, list[dict[str, Any]]], arguments: list[str], code: Code, says: str
) -> None:
    with raises_code(code) as refused:
        command(make(tmp_path / "p", suites), *arguments)
    assert says in str(refused.value) and refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        (expect("column_values_to_be_lovely", column="host"), "Great Expectations has none of that name"),
        (expect("column_values_to_be_between", column="usage", low=1), "it has no argument low; mend it: "),
        (expect("column_values_to_not_be_null"), "it lacks the argument column; mend it: https://"),
        (
            expect("column_values_to_be_in_set", column="host", value_set=3),
            "the argument value_set has no value that fits",
        ),
        (expect("column_values_to_be_between", column="usage"), "its arguments do not go together"),
    ],
)
def test_an_expectation_that_great_expectations_refuses_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expectation: dict[str, Any], says: str
) -> None:
    caplog.set_level(logging.NOTSET, "great_expectations")
    root = make(tmp_path / "p", {"silver.readings": [SUITES["silver.readings"][0], expectation]})
    append(root, "silver.readings", [], READINGS)
    with raises_code(
        "EXPECTATION_INVALID",
        table="silver.readings",
        match=r"silver\.readings\.json: expectation 2: expect_column_",
    ) as refused:
        command(root, "run")
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert not [each for each in caplog.records if each.name.startswith("great_expectations")]


def test_a_suite_without_expectations_is_passed(tmp_path: Path) -> None:
    root = make(tmp_path / "p", {"bronze.raw": []})
    (root / "quality" / "bronze.raw.json").write_text('{"name": "bronze.raw"}')
    append(root, "bronze.raw", [], RAW)
    done = validate.run(load_project(root), docs=tmp_path / "docs")
    assert done.passed and [one.outcomes for one in done.validations] == [()] and done.docs.exists()


def test_only_the_pass_that_writes_a_row_can_hold_it_back(spark: SparkSession, tmp_path: Path) -> None:
    quarantine = {**expect("column_values_to_not_be_null", column="host"), "meta": {"action": "quarantine"}}
    loaded = load_project(make(tmp_path / "gold", {"gold.by_host": [quarantine]}))
    with raises_code(
        "ACTION_NOT_POSSIBLE",
        table="gold.by_host",
        match=r"has the action quarantine, but rows of gold\.by_host",
    ):
        analysis.analyse(spark, loaded)


def test_flows_leave_suites_of_whole_tables_alone(spark: SparkSession, root: Path) -> None:
    found = analysis.analyse(spark, load_project(root))
    assert [name for name, table in found.items() if table.gate is not None] == ["silver.readings"]


def test_other_commands_do_not_import_great_expectations() -> None:
    code = "import sys, headwater.cli, headwater.project.load; sys.exit('great_expectations' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
