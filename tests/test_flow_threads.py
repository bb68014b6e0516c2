"""How a flow's thread ends, and who learns of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.common.progress import LONG, Board
from headwater.errors import BrokerUnavailable
from headwater.operations.rebuild import rebuild
from headwater.project.load import load_project
from headwater.run import supervisor
from headwater.run.supervisor import Options, Run
from headwater.storage import failure, json_file
from headwater.storage.lake import Lake
from headwater.storage.mailbox import Request
from headwater.storage.wake import Heads
from headwater.testing import Project

TOPIC = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": 'import headwater as hw\nraw = hw.topic("raw")\n',
}
NAME = "bronze.raw"
AWAY = BrokerUnavailable("Kafka does not answer", code="BROKER_UNAVAILABLE")


class Panic(BaseException):
    """What delta-rs raises where its own code is wrong, is no `Exception` either."""


class Gone:
    """A pipe whose reader has gone after so many lines."""

    def __init__(self, after: int) -> None:
        self._left = after

    def write(self, text: str) -> None:
        self._left -= text.endswith("\n")
        if self._left < 0:
            raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        """All is written."""


def ran(
    root: Path, monkeypatch: pytest.MonkeyPatch, *raised: BaseException, board: Board
) -> tuple[int, Lake]:
    """How often a flow was begun that raises these, one after the other, and then ends; its lake."""
    for name, text in TOPIC.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    left, begun, project = [*raised], [], load_project(root)

    class Flow:
        def run(self) -> None:
            begun.append(self)
            if left:
                raise left.pop(0)

    monkeypatch.setattr(supervisor, "BACKOFF", (0.01, 0.01))
    monkeypatch.setattr(supervisor, "jvm_is_gone", lambda context: False)
    monkeypatch.setattr(Run, "_begin", lambda run, context, name: Flow())
    spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *told: None))
    lake, heads = Lake(project.conf.lake), Heads()
    context: Any = SimpleNamespace(spark=spark, heads=heads, lake=lake)
    thread = Run(project, Options(), board)._worker(context, NAME)
    thread.start()
    thread.join(60)
    assert heads.ended(NAME)
    return len(begun), lake


@pytest.mark.parametrize("error", [SystemExit(3), Panic("unwrap"), ValueError("wrong")], ids=repr)
def test_it_fails_whatever_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    board = Board()
    begun, lake = ran(tmp_path, monkeypatch, error, board=board)
    assert (begun, board.failed()) == (1, [NAME])
    kept = failure.read(lake.flow_folder(NAME))
    assert kept is not None and f"raw.py:2: {NAME}: {type(error).__name__}: {error}" in kept.error


@pytest.mark.parametrize("after", [0, 1, 2, 99])
def test_it_goes_on_when_nobody_reads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    pipe: Any = Gone(after)
    board = Board(pipe, pipe)
    assert ran(tmp_path, monkeypatch, AWAY, AWAY, board=board)[0] == 3
    assert board.flows[NAME].state == "done"


@pytest.mark.parametrize(
    "error", [duckdb.OutOfMemoryException("no room"), SystemError("AST constructor …")], ids=repr
)
def test_what_may_pass_is_tried_again_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    board = Board()
    assert ran(tmp_path, monkeypatch, error, error, error, board=board)[0] == 4
    assert board.flows[NAME].state == "done"
    assert ran(tmp_path, monkeypatch, *[error] * 9, board=board)[0] == 4
    assert board.failed() == [NAME]


def test_who_asks_a_flow_that_waits_or_has_failed_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board()
    _, lake = ran(tmp_path, monkeypatch, board=board)
    run: Any = Run(load_project(tmp_path), Options(), board)
    folder = lake.flow_folder(NAME)
    (folder / "requests").mkdir(parents=True)
    for state, code in (("waiting", "FLOW_WAITS"), ("failed", "FLOW_HAS_FAILED")):
        for _ in range(LONG + 1):
            board.state(NAME, state, "the lookup does not answer")
        asked = folder / "requests" / f"{state}.json"
        json_file.write(asked, asdict(Request("replay")))
        run._keep_house(SimpleNamespace(lake=lake))
        said = json_file.read(asked.with_suffix(".answer"), hint="")
        assert said["code"] == code and not asked.exists()
        assert "the lookup does not answer" in said["error"] or state == "failed"
    board.state(NAME, "running")
    json_file.write(asked, asdict(Request("replay")))
    run._keep_house(SimpleNamespace(lake=lake))
    assert asked.exists()  # the flow takes it


def test_a_rebuild_is_not_swapped_in_when_a_function_exits(interpreted: SparkSession, tmp_path: Path) -> None:
    said = {
        **TOPIC,
        "silver/visits.sql": "CREATE STREAMING TABLE visits TBLPROPERTIES ('headwater.decode' = 'json', "
        "'headwater.schema' = 'n INT, at TIMESTAMP') AS SELECT n, at, _source FROM STREAM bronze.raw",
        "gold/calls.py": """import headwater as hw

@hw.process(source="silver.visits", keys=["n"], event_time="at", delay="10 seconds",
            columns="n INT", state="n INT")
def calls(row, key):
    if row is not None:
        yield {"n": row["n"]}
""",
    }
    project = Project(said, tmp_path, spark=interpreted)
    project.send("raw", [{"n": n, "at": f"2026-01-01 00:00:0{n}"} for n in range(5)]).end()
    before, file = project.lake.places()["gold.calls"], project.root / "gold/calls.py"
    file.write_text(file.read_text().replace("        yield", "        raise SystemExit(3)\n        yield"))
    with raises_code("BUILD_FAILED"):
        rebuild(project.definitions, ["gold.calls"])
    assert project.lake.places()["gold.calls"] == before
