"""Flows that read what their source has when they first find rows there, and nothing that comes later."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.operations.maintain import horizon
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner.explained import explain
from headwater.query.inspect.status import lag
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.testing import Project

TOPICS = "import headwater as hw\n\nold = hw.topic('old')\nnew = hw.topic('new')\n"
DECODED = """CREATE STREAMING TABLE {0} TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'id INT, seq INT, a STRING'
) AS SELECT id, seq, a FROM STREAM bronze.{0}"""
FILES = {
    "conf/local.yaml": "kafka: embedded\nmax_rows_per_batch: 2\n",
    "bronze/raw.py": TOPICS,
    **{f"silver/{name}.sql": DECODED.format(name) for name in ("old", "new")},
}
KEYS = "KEYS (id) SEQUENCE BY seq"
IN_PYTHON = """from pyspark import pipelines as dp

dp.create_streaming_table("t")
"""
CDC = {
    "gold/t.sql": "CREATE STREAMING TABLE t;\n"
    f"CREATE FLOW first AS AUTO CDC ONCE INTO t FROM silver.old {KEYS};\n"
    f"CREATE FLOW live AS AUTO CDC INTO t FROM STREAM silver.new {KEYS};\n"
}
CDC_IN_PYTHON = {
    "gold/t.py": IN_PYTHON
    + "said = {'target': 't', 'keys': ['id'], 'sequence_by': 'seq'}\n"
    + "dp.create_auto_cdc_flow(source='silver.old', name='first', once=True, **said)\n"
    + "dp.create_auto_cdc_flow(source='silver.new', name='live', **said)\n"
}
CDC_BESIDE = {
    "gold/t.sql": "CREATE STREAMING TABLE t",
    "gold/flows.py": "import headwater as hw\n\n"
    "said = {'target': 'gold.t', 'keys': ['id'], 'sequence_by': 'seq'}\n"
    "first = hw.auto_cdc(source='silver.old', once=True, **said)\n"
    "live = hw.auto_cdc(source='silver.new', **said)\n",
}
INSERTS = {
    "gold/t.sql": "CREATE STREAMING TABLE t;\n"
    "CREATE FLOW first AS INSERT INTO ONCE t BY NAME SELECT * FROM silver.old;\n"
    "CREATE FLOW live AS INSERT INTO t BY NAME SELECT * FROM STREAM silver.new;\n"
}
INSERTS_IN_PYTHON = {
    "gold/t.py": IN_PYTHON
    + "\n@dp.append_flow(target='t', once=True)\ndef first():\n"
    + "    return spark.readStream.table('silver.old')\n"
    + "\n@dp.append_flow(target='t')\ndef live():\n    return spark.readStream.table('silver.new')\n"
}
ROWS = "id, seq, a"


def row(key: int, seq: int = 1) -> dict[str, object]:
    return {"id": key, "seq": seq, "a": f"{key}-{seq}"}


def fed(project: Project) -> str:
    return "gold.t_changes" if "gold.t_changes" in project.definitions.tables else "gold.t"


def has(project: Project, *rows: tuple[int, int]) -> None:
    assert sorted(project.rows("gold.t", ROWS)) == [(key, seq, f"{key}-{seq}") for key, seq in sorted(rows)]


@pytest.mark.parametrize("files", [CDC, CDC_IN_PYTHON, CDC_BESIDE, INSERTS, INSERTS_IN_PYTHON])
def test_what_was_there_is_read_and_nothing_that_comes_later(
    files: dict[str, str], interpreted: SparkSession, tmp_path: Path
) -> None:
    project = Project({**FILES, **files}, tmp_path, spark=interpreted)
    project.send("new", [row(9)]).step()
    has(project, (9, 1))  # nothing was found yet: so it has not read
    project.send("old", [row(key) for key in range(5)]).step()
    there = [(key, 1) for key in (0, 1, 2, 3, 4, 9)]
    has(project, *there)
    for turn in range(2):
        project.send("old", [row(20 + turn)]).send("new", [row(30 + turn)])
        project.step()
        there.append((30 + turn, 1))
        has(project, *there)
        project.restart()
    (read,) = log.flows(project.target(fed(project)).place.path)["gold.first"]["consumed"].values()
    assert read["until"] == read["version"]
    assert lag(project.definitions, project.lake, fed(project), {}) == 0


def test_it_is_bounded_by_what_was_there_whatever_comes_while_it_reads(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    """Three batches: more comes after the first."""
    project = Project({**FILES, **INSERTS}, tmp_path, spark=interpreted)
    for key in (0, 2, 4):
        project.send("old", [row(key), row(key + 1)]).step("silver.old")
    assert project.flow("gold.t").step()
    has(project, (0, 1), (1, 1))
    project.send("old", [row(key) for key in range(10, 15)])
    project.step("silver.old")
    project.restart().step()
    has(project, *((key, 1) for key in range(6)))


def test_a_rebuild_reads_what_is_there_then(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project({**FILES, **CDC}, tmp_path, spark=interpreted)
    project.send("old", [row(1)]).step()
    project.send("old", [row(2)]).step()
    has(project, (1, 1))
    project.rebuild("gold.t_changes", "gold.t")
    project.restart().step()
    has(project, (1, 1), (2, 1))
    project.send("old", [row(3)]).send("new", [row(1, 2)]).step()
    has(project, (1, 2), (2, 1))


def test_what_it_has_read_is_held_and_compared(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project({**FILES, **CDC}, tmp_path, spark=interpreted)
    project.send("old", [row(1)]).step()
    project.send("old", [row(2)]).step()
    for found in reconcile(project.definitions, [fed(project), "gold.t"]):
        assert found.same, found
    held = [hold for hold in horizon.holds(project.definitions, project.lake) if hold.table == "silver.old"]
    assert "gold.first" in {hold.who for hold in held}


def test_it_reads_one_table(interpreted: SparkSession, tmp_path: Path) -> None:
    query = "SELECT o.* FROM silver.old o JOIN silver.new USING (id)"
    flow = f"CREATE STREAMING TABLE t;\nCREATE FLOW f AS INSERT INTO ONCE t BY NAME {query}"
    with raises_code("SEVERAL_STREAMS", match="reads 2 tables once"):
        Project({**FILES, "gold/t.sql": flow}, tmp_path, spark=interpreted).step()


def test_a_function_that_reads_once_may_read_the_table(interpreted: SparkSession, tmp_path: Path) -> None:
    flows = INSERTS_IN_PYTHON["gold/t.py"].replace(
        "readStream.table('silver.old')", "read.table('silver.old')"
    )
    project = Project({**FILES, "gold/t.py": flows}, tmp_path, spark=interpreted)
    project.send("old", [row(1)]).step()
    project.send("old", [row(2)]).send("new", [row(3)]).step()
    has(project, (1, 1), (3, 1))


def test_explain_says_so(interpreted: SparkSession, tmp_path: Path) -> None:
    once = f"CREATE STREAMING TABLE t FLOW AUTO CDC ONCE FROM silver.old {KEYS}"
    project = Project({**FILES, "gold/t.sql": once}, tmp_path, spark=interpreted)
    found = explain(interpreted, project.definitions, ["gold.t_changes"])
    said = "silver.old as it is when gold.t_changes first finds rows there: it does not read what comes later"
    assert said in found[0].snapshots


@pytest.mark.parametrize("step", ["pinned", "built", "committed", "sealed"])
def test_a_kill_changes_nothing_of_what_is_read(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What came before the killed process had pinned its first batch is read, and no more."""
    project = Project({**FILES, **INSERTS}, tmp_path, spark=interpreted)
    for key in (0, 2):
        project.send("old", [row(key), row(key + 1)]).step("silver.old")

    def killed(at: str, flow: str) -> None:
        if (at, flow) == (step, "gold.first"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", killed)
        with pytest.raises(KeyboardInterrupt):
            project.step("gold.t")
    project.send("old", [row(7)]).step("silver.old")
    project.restart().step()
    has(project, *((key, 1) for key in range(4)))


WINDOWS = {
    f"silver/{name}.sql": DECODED.format(name)
    .replace("a STRING", "at TIMESTAMP")
    .replace("a FROM", "at, _source FROM")
    for name in ("old", "new")
} | {
    "silver/t.sql": "CREATE STREAMING TABLE t;\n"
    "CREATE FLOW first AS INSERT INTO ONCE t BY NAME SELECT * FROM silver.old;\n"
    "CREATE FLOW live AS INSERT INTO t BY NAME SELECT * FROM STREAM silver.new;\n",
    "gold/w.sql": "CREATE STREAMING TABLE w TBLPROPERTIES ('headwater.emit' = 'final') AS "
    "SELECT window.start AS begin, count(*) AS n "
    "FROM STREAM silver.t WATERMARK at DELAY OF INTERVAL 1 SECONDS GROUP BY window(at, '1 minute')",
}


def test_what_comes_later_to_its_source_holds_no_window(interpreted: SparkSession, tmp_path: Path) -> None:
    """Its partition is silent once it has read: no row of it is on its way."""
    project = Project({**FILES, **WINDOWS}, tmp_path, spark=interpreted)

    def sent(topic: str, *seconds: int) -> None:
        rows = [{"id": 0, "seq": 0, "at": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"} for at in seconds]
        project.send(topic, rows)

    sent("old", 0, 1)
    sent("new", 5, 6)
    project.step()
    for minute in range(1, 4):
        sent("old", 60 * minute + 30)
        sent("new", 60 * minute)
        project.clock.advance("2 minutes")
        project.step()
    assert [n for _, n in sorted(project.rows("gold.w", "begin, n"))] == [4, 1, 1, 1]
