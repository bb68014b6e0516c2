"""Whole tables are validated while a run goes on, when their suites say."""

from __future__ import annotations

import json
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from raising import raises_code

from headwater import query
from headwater.common.progress import Board
from headwater.flows.context import Context
from headwater.project.load import load_project
from headwater.run.validation import Schedule
from headwater.storage.lake import Lake
from headwater.storage.target import Identity, Target

NAME = "bronze.raw"
RAW = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
VALUE, COUNT = "values_to_not_be_null(value)", "table_row_count_to_be_between()"


class Case:
    """A project with one table, and a run of it."""

    def __init__(self, root: Path, spark: SparkSession, every: str) -> None:
        self.root, self.spark = root, spark
        for folder in ("bronze", "quality", "conf"):
            (root / folder).mkdir(parents=True)
        (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
        (root / "bronze" / "raw.py").write_text("import headwater as hw\nraw = hw.topic('raw')\n")
        value = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "value"}}
        count = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 2}}
        expectations = [value, {**count, "severity": "warning"}]
        suite = {"name": NAME, "meta": {"every": every}, "expectations": expectations}
        (root / "quality" / f"{NAME}.json").write_text(json.dumps(suite))
        self.lake = Lake(root / ".headwater" / "lake")
        self.lines, self.notices = StringIO(), StringIO()

    def context(self) -> Context:
        project = load_project(self.root)
        board = Board(self.lines, self.notices)
        return Context(project, {}, self.spark, self.lake, board, once=False)

    def append(self, *values: bytes | None) -> None:
        target = Target(self.lake.create(NAME, RAW, properties={}))
        sequence = target.last(NAME) + 1
        rows = [{"partition": 0, "offset": sequence * 100 + n, "value": v} for n, v in enumerate(values)]
        files = target.write(pa.Table.from_pylist(rows, RAW), f"{sequence:012d}")
        target.append(files, Identity(NAME, 1, sequence, {}))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]


def test_a_table_is_validated_once_it_holds_something_and_then_when_it_is_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(tmp_path / "p", spark, "1h")
    schedule = Schedule(context := case.context(), [NAME])
    schedule.step()
    assert case.events() == []
    case.append(b"{}")
    schedule.step()
    (event,) = case.events()
    assert (event["event"], event["table"], event["version"]) == ("validation", NAME, 1)
    assert event["missed"] == {COUNT: "observed 1"}
    assert case.notices.getvalue() == f"headwater: {NAME}: version 1: {COUNT}: observed 1\n"
    context.check(NAME)  # a warning stops nothing
    schedule.step()
    Schedule(case.context(), [NAME]).step()  # nor is it due after a restart
    assert len(case.events()) == 1
    kept = query.run("SELECT DISTINCT version FROM ops.quality_results", project=case.root)
    assert kept.rows == [(1,)]
    assert (case.root / ".headwater" / "data_docs" / "index.html").exists()


def test_a_table_that_fails_is_written_no_more_until_it_is_mended(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(tmp_path / "p", spark, "1h")
    case.append(b"{}", None)
    Schedule(context := case.context(), [NAME]).step()
    with raises_code("EXPECTATION_FAILED", match=r"version 1 fails values_to_not_be_null\(value\) \(1 of 2"):
        context.check(NAME)
    suite = case.root / "quality" / f"{NAME}.json"
    suite.write_text(suite.read_text().replace('{"column": "value"}', '{"column": "value", "mostly": 0.5}'))
    Schedule(mended := case.context(), [NAME]).step()  # a restart looks at once
    mended.check(NAME)
    assert [event["missed"].keys() for event in case.events()] == [{VALUE}, set()]


def test_a_running_schedule_ends_with_the_run_and_outlives_what_can_not_be_validated(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(tmp_path / "p", spark, "1s")
    case.append(b"{}", b"{}")
    docs = case.root / ".headwater" / "data_docs"
    docs.mkdir()
    (docs / "mine.txt").write_text("of something else")
    context = case.context()
    thread = threading.Thread(target=Schedule(context, [NAME]).run)
    thread.start()
    try:
        wait_for(lambda: "could not be validated" in case.notices.getvalue())
        (docs / "mine.txt").unlink()
        wait_for(lambda: len(case.events()) >= 2)
    finally:
        context.stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert {event["missed"] == {} for event in case.events()} == {True}


def test_tables_without_a_schedule_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(tmp_path / "p", spark, "1h")
    suite = case.root / "quality" / f"{NAME}.json"
    suite.write_text(suite.read_text().replace('"meta": {"every": "1h"}, ', ""))
    case.append(None)
    schedule = Schedule(case.context(), [NAME])
    schedule.step()
    schedule.run()  # has nothing to do
    assert case.events() == []


def wait_for(condition: Any, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
