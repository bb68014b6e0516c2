"""Several flows into one table: each row of each source once, wherever it crashes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors import ProjectError
from headwater.flows.upstream import Upstream
from headwater.planner.changes import facts, plan
from headwater.query.inspect import kind
from headwater.runtime import failpoints
from headwater.storage import json_file
from headwater.storage.identity import Identity
from headwater.storage.ranges import Position
from headwater.testing import Project

WHOLE = "gold.whole"
SILVER = '''import headwater as hw
{name} = None
@hw.table(source="bronze.{name}", decode=hw.json("n BIGINT"))
def {name}(raw):
    """Rows."""
    return raw.drop("_rescued")
'''
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\neast = hw.topic('east')\nwest = hw.topic('west')\n",
    "silver/east.py": SILVER.format(name="east"),
    "silver/west.py": SILVER.format(name="west"),
    "gold/whole.sql": "CREATE STREAMING TABLE gold.whole COMMENT 'Both'",
    "gold/from_east.sql": "CREATE FLOW gold.from_east AS INSERT INTO gold.whole BY NAME "
    "SELECT n, 'east' AS side, _source FROM STREAM silver.east",
    "gold/from_west.sql": "CREATE FLOW gold.from_west COMMENT 'The other' AS INSERT INTO gold.whole BY NAME "
    "SELECT _source, 'west' AS side, n FROM STREAM silver.west WHERE n > 0",
}
SUITE = """{"name": "gold.whole", "expectations": [{"type": "expect_column_values_to_be_between",
 "kwargs": {"column": "n", "max_value": 90}, "severity": "critical", "meta": {"action": "drop"}}]}"""


class Crash(BaseException):
    """The process ends here."""


class Sides(Project):
    """A project whose two silver tables the test writes."""

    def __init__(self, root: Path, spark: SparkSession, files: Mapping[str, str] | None = None) -> None:
        super().__init__({**FILES, **(files or {})}, root, spark=spark)
        for side in ("east", "west"):
            self.target(f"silver.{side}")
        self.added: list[tuple[str, int]] = []
        self.version = 0  # of bronze, that the sources have read

    def add(self, side: str, *numbers: int) -> None:
        consumed = {f"bronze.{side}": {"generation": 1, "version": self.version, "files": 0}}
        self.append(f"silver.{side}", [{"n": n} for n in numbers], consumed=consumed)
        self.added += [(side, n) for n in numbers]


def test_each_row_once_wherever_it_crashes(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    left = [0]

    def reach(step: str, flow: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash(step)

    monkeypatch.setattr(failpoints, "reach", reach)
    case = Sides(tmp_path, interpreted, {"quality/gold.whole.json": SUITE})
    flow, crashes = case.flow(WHOLE), set[str]()
    for _ in range(25):
        for side in draw.sample(["east", "west"], draw.randint(1, 2)):
            case.add(side, *(draw.randrange(-20, 100) for _ in range(draw.randrange(1, 5))))
        left[0] = draw.randrange(1, 16)
        try:
            flow.step()
        except Crash as e:
            crashes.add(str(e))
            left[0] = 0
            flow = case.flow(WHOLE)
    left[0] = 0
    while flow.step():
        pass
    assert len(crashes) > 2, crashes
    want = [(side, n) for side, n in case.added if n <= 90 and (side == "east" or n > 0)]
    assert case.rows(WHOLE, "side, n") == sorted(want, key=repr)
    batches = case.board.flows[WHOLE]
    assert batches.rows_out <= len(want)  # what was committed before a crash is not counted
    flows = case.flow(WHOLE)._flows[0]._table.flows
    assert set(flows) == {"gold.from_east", "gold.from_west"}


def test_what_has_come_is_known_through_all_flows(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Sides(tmp_path, interpreted)
    for side, end in (("east", 7), ("west", 9)):
        name = f"bronze.{side}"
        case.target(name).append([], Identity(name, 1, 0, {side: {"0": end, "1": 0}}))
        case.version = 1
        case.add(side, 1)
    assert kind(case.definitions, WHOLE) == "sql" and kind(case.definitions, "silver.east") == "python"
    upstream = Upstream(case.context, WHOLE)
    begun = {"main/east/0", "main/west/0"}
    assert upstream.known() == begun | {"main/east/1", "main/west/1"}
    assert Upstream(replace(case.context, once=True), WHOLE).known() == begun
    assert upstream._come(WHOLE, 0) == {}
    flow = case.flow(WHOLE)
    assert flow.step()
    come = upstream._come(WHOLE, flow.committer.table.version)
    assert come == {"main/east/0": 7, "main/east/1": 0, "main/west/0": 9, "main/west/1": 0}
    at = Position(1, flow.committer.table.version)
    ends = {"east": {"0": 8}, "files:old": {"0": 3}}  # of offsets that have no records: they are passed over
    case.target("bronze.east").append([], Identity("bronze.east", 1, 1, ends))
    asked = {"main/east/0", "main/west/0", "files/old/0"}
    assert upstream.left(at, asked) == {"main/east/0": (8, 8), "main/west/0": (9, 9), "files/old/0": (3, 3)}
    alone = Upstream(replace(case.context, ends=None), WHOLE)  # Kafka can't be asked, as by a rebuild
    assert alone.left(at, asked) == {"files/old/0": (3, 3)}


def test_a_flow_under_another_name_would_read_all_of_its_stream_again(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Sides(tmp_path, interpreted)
    case.add("east", 1, 2)
    case.add("west", 3)
    case.end(WHOLE)
    (tmp_path / "gold/from_east.sql").unlink()
    case.write({"gold/east.sql": FILES["gold/from_east.sql"].replace("gold.from_east", "gold.east")})
    (found,) = (line for line in plan(case.definitions) if line.table == WHOLE)
    assert found.verdict.effect == "rebuild"
    assert any(
        "gold.from_east: silver.east" in why and "gold.east: silver" in why for why in found.verdict.why
    )
    with raises_code("DEFINITION_CHANGED"):
        case.restart().end(WHOLE)
    assert len(case.rows(WHOLE)) == 3


@pytest.mark.parametrize("noted", [True, False], ids=["", "by a version that noted no flows"])
def test_flows_that_are_new_or_stand_in_another_order_go_on(
    interpreted: SparkSession, tmp_path: Path, noted: bool
) -> None:
    more = "CREATE FLOW gold.{} AS INSERT INTO gold.whole BY NAME "
    more += "SELECT n, 'm' AS side, _source FROM STREAM silver.east"
    case = Sides(tmp_path, interpreted, {"gold/b.sql": more.format("b") + " WHERE n > 5"})
    case.add("east", 1, 2)
    case.add("west", 3)
    case.end(WHOLE)
    kept = case.lake.flow_folder(WHOLE) / facts.FILE
    if not noted:
        before = json.loads(kept.read_text())
        del before["facts"]["flows"]
        json_file.write(kept, before)
    case.write({"gold/a.sql": more.format("b") + " WHERE n > 5", "gold/z.sql": more.format("c")})
    (tmp_path / "gold/b.sql").unlink()

    def effect() -> str:
        return {line.table: line.verdict.effect for line in plan(case.definitions)}[WHOLE]

    assert effect() == "resumes"
    case.write({"gold/a.sql": more.format("d") + " WHERE n > 5"})
    assert effect() == "rebuild"


def test_a_way_that_has_not_begun_is_waited_for(interpreted: SparkSession, tmp_path: Path) -> None:
    west = SILVER.format(name="west").replace("bronze.west", "bronze.east")
    case = Sides(tmp_path, interpreted, {"silver/west.py": west})
    case.target("bronze.east").append([], Identity("bronze.east", 1, 0, {"east": {"0": 7}}))
    consumed = {"bronze.east": {"generation": 1, "version": 1, "files": 0}}
    for side in ("east", "west"):
        case.append(f"silver.{side}", [{"n": 1}], consumed=consumed)
    upstream, whole = Upstream(case.context, WHOLE), case.flow(WHOLE)
    for flow, end in zip(whole._flows, (0, 7), strict=True):
        assert flow.step()
        assert upstream._come(WHOLE, whole.committer.table.version) == {"main/east/0": end}


WRONG = {
    "gold/whole.sql": (
        "CREATE STREAMING TABLE gold.other",
        r"from_east\.sql:1: gold\.from_east inserts into gold\.whole, which",
    ),
    "gold/whole.sql ": (
        "CREATE STREAMING TABLE gold.whole TBLPROPERTIES ('headwater.emit' = 'final')",
        r"whole\.sql:1: gold\.whole: emit = 'final' is of a query, and flows feed the table; let a table",
    ),
    "gold/lone.sql": (
        "CREATE STREAMING TABLE gold.lone",
        r"lone\.sql:1: gold\.lone is fed by nothing; write AS SELECT",
    ),
    "gold/from_east.sql": (
        "CREATE FLOW gold.from_east AS INSERT INTO gold.whole (n) SELECT n FROM STREAM silver.east",
        r"inserts by position; write INSERT INTO … BY NAME",
    ),
    "gold/third.sql": (
        "CREATE FLOW gold.third AS INSERT INTO gold.whole BY NAME SELECT n, side FROM STREAM silver.east "
        "LATERAL VIEW explode(array('x')) AS side",
        r"gold\.third and gold\.from_east differ in _source; flows into one table",
    ),
    "gold/from_west.sql": (
        "CREATE FLOW gold.from_west AS INSERT INTO gold.whole BY NAME "
        "SELECT count(*) AS n FROM STREAM silver.west",
        r"gold\.from_west aggregates; do that in a table that reads gold\.whole",
    ),
}


@pytest.mark.parametrize("file", WRONG)
def test_what_is_wrong_is_said(interpreted: SparkSession, tmp_path: Path, file: str) -> None:
    text, said = WRONG[file]
    with pytest.raises(ProjectError, match=said):
        Sides(tmp_path, interpreted, {file.strip(): text})
