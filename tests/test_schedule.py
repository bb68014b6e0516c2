"""Whole tables are validated while a run goes on, when their suites say."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from raising import raises_code

from headwater import query
from headwater.run.validation import Schedule
from headwater.testing import Project

NAME = "bronze.raw"
VALUE, COUNT = "values_to_not_be_null(value)", "table_row_count_to_be_between()"


def validated(root: Path, spark: SparkSession, every: str) -> Project:
    """A project with one table, which is validated so often."""
    value = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "value"}}
    count = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 2}}
    expectations = [value, {**count, "severity": "warning"}]
    suite = {"name": NAME, "meta": {"every": every}, "expectations": expectations}
    files = {
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
        f"quality/{NAME}.json": json.dumps(suite),
    }
    return Project(files, root, spark=spark)


def test_a_table_is_validated_once_it_holds_something_and_then_when_it_is_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = validated(tmp_path / "p", spark, "1h")
    schedule = Schedule(context := case.restart().context, [NAME])
    schedule.step()
    assert case.events == []
    case.send("raw", [b"{}"])
    schedule.step()
    (event,) = case.events
    assert (event["event"], event["table"], event["version"]) == ("validation", NAME, 1)
    assert event["missed"] == {COUNT: "observed 1"}
    assert case.notices == f"headwater: {NAME}: version 1: {COUNT}: observed 1\n"
    context.check(NAME)  # a warning stops nothing
    schedule.step()
    Schedule(case.restart().context, [NAME]).step()  # nor is it due after a restart
    assert len(case.events) == 1
    kept = query.run("SELECT DISTINCT version FROM ops.quality_results", project=case.root)
    assert kept.rows == [(1,)]
    assert (case.root / ".headwater" / "data_docs" / "index.html").exists()


def test_a_table_that_fails_is_written_no_more_until_it_is_mended(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = validated(tmp_path / "p", spark, "1h")
    case.send("raw", [b"{}", None])
    Schedule(context := case.restart().context, [NAME]).step()
    with raises_code("EXPECTATION_FAILED", match=r"version 1 fails values_to_not_be_null\(value\) \(1 of 2"):
        context.check(NAME)
    suite = case.root / "quality" / f"{NAME}.json"
    suite.write_text(suite.read_text().replace('{"column": "value"}', '{"column": "value", "mostly": 0.5}'))
    Schedule(mended := case.restart().context, [NAME]).step()  # a restart looks at once
    mended.check(NAME)
    assert [event["missed"].keys() for event in case.events] == [{VALUE}, set()]


def test_a_running_schedule_ends_with_the_run_and_outlives_what_can_not_be_validated(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = validated(tmp_path / "p", spark, "1s")
    case.send("raw", [b"{}", b"{}"])
    docs = case.root / ".headwater" / "data_docs"
    docs.mkdir()
    (docs / "mine.txt").write_text("of something else")
    context = case.restart().context
    thread = threading.Thread(target=Schedule(context, [NAME]).run)
    thread.start()
    try:
        wait_for(lambda: "could not be validated" in case.notices)
        (docs / "mine.txt").unlink()
        wait_for(lambda: len(case.events) >= 2)
    finally:
        context.stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert {event["missed"] == {} for event in case.events} == {True}


def test_tables_without_a_schedule_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    case = validated(tmp_path / "p", spark, "1h")
    suite = case.root / "quality" / f"{NAME}.json"
    suite.write_text(suite.read_text().replace('"meta": {"every": "1h"}, ', ""))
    case.send("raw", [None])
    schedule = Schedule(case.restart().context, [NAME])
    schedule.step()
    schedule.run()  # has nothing to do
    assert case.events == []


def wait_for(condition: Any, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
