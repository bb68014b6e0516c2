"""What a table's versions were, what changed between two, and how a table goes for good."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner, Result
from visits import COUNTS, ENDED, EPOCH, TOP, VISITS, Visits

from headwater import query
from headwater.cli import app
from headwater.common import scratch
from headwater.common.diff import Pair, Side
from headwater.errors import LakeError, LeaseError, ProjectError, QueryError
from headwater.operations import replay as replaying
from headwater.operations.rebuild import clean
from headwater.operations.replay import resolve
from headwater.planner.changes import plan
from headwater.query.inspect import diff
from headwater.storage import log
from headwater.storage.lease import Lease
from headwater.testing import Record


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("history") / "project", interpreted)
    for seed in range(3):
        case.visit(random.Random(seed))
        case.drain()
    return case


@pytest.fixture
def case(filled: Visits, tmp_path: Path) -> Visits:
    return filled.copied(tmp_path / "project")


def said(case: Visits, *command: str) -> Result:
    return CliRunner().invoke(app, [*command, "--project", str(case.root)])


def listed(case: Visits, *command: str) -> Any:
    result = said(case, *command, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def test_a_replay_says_what_it_read_and_added(case: Visits) -> None:
    fields = {"user": "a", "n": "many", "at": EPOCH}
    case.send("raw", [Record(json.dumps(fields), offset=case.sent + at) for at in range(3)])
    case.drain(VISITS)
    mended = (case.root / "silver/visits.py").read_text().replace("n BIGINT", "n STRING")
    mended = mended.replace(
        'raw.where("n >= 0")', """raw.withColumn("n", F.expr("coalesce(try_cast(n AS BIGINT), 7)"))"""
    )
    case.write({"silver/visits.py": mended})
    assert resolve(case.definitions, VISITS, "replay").replayed == 3
    newest = listed(case, "history", VISITS)[0]
    assert newest["what"] == "replay 0 of quarantined records"
    assert (newest["rows_read"], newest["rows_added"], newest["rows_changed"]) == (3, 3, 0)
    assert newest["seconds"] > 0


def at(case: Visits, table: str, version: int) -> dict[Any, tuple[Any, ...]]:
    """{first column → row} of a version."""
    found = query.run(f"SELECT * FROM {table}", project=case.root, at=str(version))
    return {row[0]: row for row in found.rows}


def test_a_replay_writes_no_generation_that_another_process_holds(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, held = replaying.flow_of, list[Lease]()

    def flow_of(context: Any, table: str) -> Any:
        if not held:  # it has its lease when a rebuild swaps, and a run goes on in what that made
            case.rebuild(VISITS)
            held.append(Lease(VISITS, case.lake.flow_folder(VISITS)))
        return opened(context, table)

    monkeypatch.setattr(replaying, "flow_of", flow_of)
    with raises_code("LEASE_HELD"):
        resolve(case.definitions, VISITS, "replay")
    held[0].release()
    assert resolve(case.definitions, VISITS, "discard", why="done").discarded > 0


def test_each_version_of_a_table_is_a_line(case: Visits) -> None:
    head = log.head(case.lake.place(VISITS).path)
    lines = listed(case, "history", VISITS)
    assert [line["version"] for line in lines] == list(range(head, -1, -1))
    assert [line["what"] for line in lines] == ["batch 2", "batch 1", "batch 0", "table made"]
    assert [line["rows_read"] for line in lines] == [40, 40, 40, None]
    rows = query.run(f"SELECT count(*) FROM {VISITS}", project=case.root).rows[0][0]
    assert sum(line["rows_added"] for line in lines) == rows
    assert all((line["files_added"], line["files_removed"]) == (1, 0) for line in lines[:-1])
    assert all(line["seconds"] > 0 for line in lines[:-1])
    assert [datetime.fromisoformat(line["at"]) for line in lines] == [
        log.read(case.lake.place(VISITS).path, line["version"]).at.replace(tzinfo=UTC) for line in lines
    ]

    newest = listed(case, "history", TOP, "-n", "1")[0]
    before, after = (at(case, TOP, newest["version"] - step) for step in (1, 0))
    assert newest["rows_changed"] == sum(before[key] != after[key] for key in before)
    assert (newest["rows_added"], newest["rows_removed"]) == (0, 0)
    beside = listed(case, "history", "quarantine.silver_visits", "-n", "1")[0]
    assert beside["what"] == f"batch 2 of {VISITS}"

    case.change(
        "silver/visits.py", '"n >= 0")', '"n >= 0").withColumn("a", F.lit(1)).withColumn("b", F.lit(2))'
    )
    case.once().open(case.definitions.tables[VISITS])
    text = said(case, "history", VISITS).stdout
    assert "columns added: a, b" in text.splitlines()[2]


def test_a_log_that_was_cleaned_is_told_as_far_as_it_goes(case: Visits) -> None:
    folder = case.lake.place(VISITS).path / "_delta_log"
    for version in range(2):
        (folder / f"{version:020d}.json").unlink()
    assert [line["version"] for line in listed(case, "history", VISITS)] == [3, 2]
    assert (
        "the log begins at version 2; commits before it have been cleaned away"
        in said(case, "history", VISITS).stdout
    )
    assert "cleaned away" not in said(case, "history", VISITS, "-n", "1").stdout
    unknown = said(case, "history", "silver.visit").exception
    assert isinstance(unknown, QueryError)
    assert str(unknown).startswith("unknown table 'silver.visit'; did you mean silver.visits")


def test_rows_are_told_by_keys_where_they_change_in_place(case: Visits) -> None:
    head = log.head(case.lake.place(TOP).path)
    before, after = at(case, TOP, 1), at(case, TOP, head)
    found = listed(case, "diff", TOP, "--from", "1", "--to", str(head))
    same = [key for key in before if key in after]
    changed = {key: (before[key], after[key]) for key in same if before[key] != after[key]}
    assert (found["before"], found["after"], found["keys"]) == (1, head, ["user"])
    assert (found["added"], found["removed"]) == (len(after) - len(same), len(before) - len(same))
    assert found["changed"] == len(changed) > 0
    for row in (row for row in found["rows"] if row["change"] == "changed"):
        old, new = changed[row["row"]["user"]]
        columns = ("user", "total", "place")
        other = [at for at in range(3) if old[at] != new[at]]
        assert row["before"] == {columns[at]: old[at] for at in other}
        assert row["after"] == {columns[at]: new[at] for at in other}

    back = listed(case, "diff", TOP, "--from", str(head), "--to", "0")
    assert (back["removed"], back["added"], back["changed"]) == (len(after), 0, 0)
    assert len(listed(case, "diff", TOP, "--from", "1", "-n", "1")["rows"]) == 1
    text = said(case, "diff", TOP, "--from", "1").stdout
    assert f"version 1 to {head}: 0 rows added, 0 removed, {len(changed)} changed" in text


def test_a_reference_table_with_versions_is_compared_like_others(case: Visits) -> None:
    folder = case.root / "conf/reference/places"
    write_deltalake(folder, pa.table({"place": ["a", "b"]}))
    write_deltalake(folder, pa.table({"place": ["b", "c"]}), mode="overwrite")
    found = listed(case, "diff", "reference.places", "--from", "0")
    assert (found["added"], found["removed"], found["keys"]) == (1, 1, [])
    shutil.rmtree(folder)


def test_rows_that_are_only_appended_are_there_or_not(case: Visits) -> None:
    path = case.lake.place(VISITS).path
    moment = log.read(path, 2).at.isoformat()
    found = listed(case, "diff", VISITS, "--from", moment, "-n", "1000")
    assert (found["before"], found["after"], found["keys"]) == (2, 3, [])
    known = {file.path for version in (1, 2) for file in log.read(path, version).added}
    assert known
    (rows,) = query.run(f"SELECT count(*) FROM {VISITS}", project=case.root).rows[0]
    (old,) = query.run(f"SELECT count(*) FROM {VISITS}", project=case.root, at="2").rows[0]
    assert (found["added"], found["removed"], found["changed"]) == (rows - old, 0, 0)
    assert sorted(row["row"]["_source"]["offset"] for row in found["rows"]) == sorted(
        row[0]
        for row in query.run(
            f"SELECT _source.offset FROM {VISITS} WHERE _source.offset >= 80", project=case.root
        ).rows
    )
    wrong = said(case, "diff", VISITS, "--from", "9").exception
    assert str(wrong) == f"{VISITS} has no version 9; it has 0 to 3"
    wrong = said(case, "diff", VISITS, "--from", "yesterday").exception
    assert str(wrong).startswith("--from yesterday is no version and no time; write a version or a time like")


def test_a_table_that_is_defined_or_not_a_table_of_its_own_is_not_dropped(case: Visits) -> None:
    def refused(table: str) -> str:
        error = said(case, "drop", table, "--yes").exception
        assert isinstance(error, ProjectError | LakeError)
        return str(error)

    assert f"{COUNTS} is defined by the project, and read by {TOP}; remove the definition first" in refused(
        COUNTS
    )
    assert "gold.nope is no table that can be dropped; without a definition are: none" in refused("gold.nope")
    assert "quarantine.silver_visits stands beside silver.visits, and goes with it" in refused(
        "quarantine.silver_visits"
    )
    (case.root / "gold/top.sql").unlink()
    assert f"gold.nope is no table that can be dropped; without a definition are: {TOP}" in refused(
        "gold.nope"
    )
    counts = (case.root / "gold/counts.sql").read_text()
    (case.root / "gold/counts.sql").unlink()
    assert f"{TOP} has read {COUNTS}, and would go on in the middle of another" in refused(COUNTS)
    case.write({"gold/counts.sql": counts})
    unsure = said(case, "drop", TOP)
    assert unsure.exit_code == 2 and "say --yes" in unsure.output and TOP in case.lake.places()
    lease = Lease(TOP, case.lake.flow_folder(TOP))
    try:
        busy = said(case, "drop", TOP, "--yes").exception
        assert isinstance(busy, LeaseError), busy
    finally:
        lease.release()
    assert TOP in case.lake.places()


def killed(case: Visits, at: str, *command: str) -> int:
    """The exit code of a process that is killed when it reaches a step."""
    run = [sys.executable, "-c", "from headwater.cli import main; main()", *command]
    where = {"HEADWATER_FAIL_POINT": f"{at}=python"}
    return subprocess.run([*run, "--project", str(case.root)], env={**os.environ, **where}).returncode


@pytest.mark.parametrize("at", [pytest.param("noted", marks=pytest.mark.torture), "dropped", None])
def test_a_dropped_table_is_gone_with_those_beside_it_whatever_is_killed(
    case: Visits, at: str | None
) -> None:
    text = (case.root / "gold/ended.sql").read_text()
    (case.root / "gold/ended.sql").unlink()
    rows, others = case.rows(ENDED), {name: case.rows(name) for name in (VISITS, COUNTS, TOP)}
    lake = case.root / ".headwater/lake"
    (lake / "_flows" / f"{ENDED}->topic" / "g0001").mkdir(parents=True)  # what a sink of it has kept
    if at is not None:
        assert killed(case, f"{at}:{ENDED}:1", "drop", ENDED, "--yes") == -signal.SIGKILL
    if at == "noted":
        assert case.rows(ENDED) == rows
        assert clean(case.definitions) == 0
        assert case.rows(ENDED) == rows
    if at == "dropped":
        assert not any(name.startswith(ENDED) for name in case.lake.places())
        assert clean(case.definitions) == 3
    else:
        assert said(case, "drop", ENDED, "--yes").exit_code == 0
    assert [path for path in lake.rglob("*") if "ended" in str(path.relative_to(lake))] == []
    assert {name: case.rows(name) for name in others} == others
    if at == "dropped":
        case.write({"gold/ended.sql": text})
        case.drain()
        assert case.rows(ENDED) == rows


def test_a_table_is_renamed_by_making_it_anew_and_dropping_the_former(case: Visits) -> None:
    text = (case.root / "gold/counts.sql").read_text()
    (case.root / "gold/counts.sql").unlink()
    case.write({"gold/users.sql": text.replace(COUNTS, "gold.users")})
    case.change("gold/top.sql", COUNTS, "gold.users")
    verdicts = {line.table: line.verdict for line in plan(case.definitions)}
    assert verdicts["gold.users"].effect == "new" and verdicts[COUNTS].effect == "gone"
    assert verdicts[TOP].why == ("sources and definition changed: it is computed anew",)
    before = {name: case.rows(name) for name in (COUNTS, TOP)}
    assert case.rebuild("gold.users").swapped
    assert said(case, "drop", COUNTS, "--yes").exit_code == 0
    assert {COUNTS: case.rows("gold.users"), TOP: case.rows(TOP)} == before
    assert {line.verdict.effect for line in plan(case.definitions)} == {"unchanged"}
    case.visit(random.Random(7))
    case.drain(VISITS, "gold.users", TOP)
    wanted = f"SELECT v.user, count(*), sum(n) FROM {VISITS} v GROUP BY 1"
    assert case.rows("gold.users") == sorted(query.run(wanted, project=case.root).rows, key=repr)
    with raises_code("UNKNOWN_TABLE"):
        case.rows(COUNTS)


@pytest.mark.parametrize("name", ["old", "new", "before", "after"])
def test_a_column_may_have_the_name_of_a_side(tmp_path: Path, name: str) -> None:
    columns = pa.schema([("key", pa.int64()), (name, pa.int64())])
    for side, value in (("a", 6), ("b", 7)):
        pq.write_table(pa.table([[1, 2], [5, value]], schema=columns), tmp_path / side)
    with scratch.connection() as connection:
        pair = Pair(connection, *(Side([str(tmp_path / side)], columns) for side in "ab"))
        found = {kind: pair.execute(sql).to_pylist() for kind, sql in diff._by_keys(pair, ("key",)).items()}
    changed = {"before": {"key": 2, name: 6}, "after": {"key": 2, name: 7}}
    assert found == {"removed": [], "changed": [changed], "added": []}
