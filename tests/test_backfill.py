"""History enters a topic's table from files: each file once, beside what Kafka brings."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake
from landed import EPOCH, Landed, parquet
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli import app
from headwater.common.wait import until
from headwater.connectors.files.file import File
from headwater.connectors.files.folder import Folder
from headwater.connectors.kafka.broker import Topic, create_topics
from headwater.errors.codes import Code
from headwater.flows import backfill as backfilling
from headwater.flows.declared import flow_of
from headwater.flows.intake import Intake
from headwater.operations.backfill import backfill, plan
from headwater.query.inspect.status import standings
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.lease import Lease
from headwater.storage.names import backfill_name
from headwater.testing import Clock

RAW, FLOW = "bronze.raw", "bronze.raw.backfill"
ONLY = {
    "conf/local.yaml": "kafka: embedded\nbroker: {port: 1}\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw', max_rows_per_batch=10)\n",
}
BELOW = {
    "silver/visits.py": """import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("n BIGINT, at BIGINT"))
def visits(raw):
    '''One row per visit.'''
    return raw.withColumn("event_time", F.timestamp_seconds("at"))
""",
    "gold/corrected.sql": """CREATE STREAMING TABLE gold.corrected AS
        SELECT window.start AS since, count(*) AS visits
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '1 minute')""",
    "gold/ended.sql": """CREATE STREAMING TABLE gold.ended
        TBLPROPERTIES ('headwater.emit' = 'final', 'headwater.idle_timeout' = '1 ms') AS
        SELECT window.start AS since, count(*) AS visits
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '1 minute')""",
}


class Filled(Landed):
    """A project whose bronze table of a topic the test writes, as Kafka would."""

    def came(self, *numbers: int) -> None:
        """One commit of the flow that reads Kafka."""
        clock, self.clock = self.clock, Clock(datetime.fromtimestamp(EPOCH + 10**6, UTC))
        self.send("raw", [{"n": n, "at": EPOCH + n} for n in numbers])
        self.clock = clock

    def backfill(self, pattern: str, **more: Any) -> Any:
        return backfill(self.definitions, RAW, str(self.root / pattern), **more)

    def partitions(self) -> dict[tuple[str, str, int], list[int]]:
        """{partition → its records}, by offset, which has no gap."""
        found: dict[tuple[str, str, int], list[int]] = {}
        for row in sorted(self.found(RAW), key=lambda row: row["offset"]):
            of = found.setdefault((row["cluster"], row["topic"], row["partition"]), [])
            assert row["offset"] == len(of)
            of.append(json.loads(row["value"])["n"])
        return found


KAFKA, FIRST, SECOND = ("main", "raw", 0), ("files", "raw", 0), ("files", "raw", 1)


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Filled:
    return Filled(tmp_path / "project", interpreted, ONLY)


def test_each_file_enters_once_beside_what_kafka_brings(case: Filled) -> None:
    case.land("b.json.gz", *range(5, 28))
    case.land("a.json", *range(5))  # newer, but its name comes first
    case.came(1000, 1001)
    before = log.flows(case.lake.place(RAW).path)[RAW]
    done = case.backfill("landing/*.json*")
    assert (done.files, done.records, done.known, done.partition, done.amiss) == (2, 28, 0, 0, {})
    assert case.partitions() == {KAFKA: [1000, 1001], FIRST: list(range(28))}
    flows = log.flows(case.lake.place(RAW).path)
    assert flows[RAW] == before and flows[FLOW]["consumed"] == {"files:raw": {"0": 28}}
    assert backfill_name(RAW) == FLOW and flows[FLOW]["sequence"] == 2  # batches of ten rows

    case.came(1002)
    done = case.backfill("landing/*.json*")
    assert (done.files, done.records, done.known) == (0, 0, 2)
    case.put("landing/c.parquet", parquet([50, 51]))
    case.put("landing/d.csv", b"n,at\n60,1\n")
    case.land("d.json", 70)
    done = case.backfill("landing/c.parquet")
    assert (done.files, done.records, done.known, done.partition) == (1, 2, 0, 1)
    assert (
        case.backfill("landing/?.json").records == 1
    )  # two of the three are there: a new pattern, all the same
    assert case.partitions() == {
        KAFKA: [1000, 1001, 1002],
        FIRST: list(range(28)),
        SECOND: [50, 51],
        ("files", "raw", 2): [70],
    }
    (standing,) = standings(case.definitions)
    assert standing.newest is not None and standing.newest.timestamp() == EPOCH + 10**6  # Kafka's
    assert (standing.unread, standing.amiss) == (None, 0)
    said = CliRunner().invoke(app, ["describe", RAW, "--project", str(case.root)]).stdout
    assert (
        "has consumed kafka:raw to offsets 0:3" in said
        and "consumed files:raw to offsets 0:28 1:2 2:1" in said
    )


def test_a_table_that_kafka_has_not_fed_yet(case: Filled) -> None:
    case.land("a.json", 1)
    assert case.backfill("landing/*").records == 1
    case.came(2)
    assert case.partitions() == {KAFKA: [2], FIRST: [1]}


class Crash(BaseException):
    """The process ends here."""


def test_a_crash_at_any_step_loses_and_doubles_nothing(case: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    sent = 0
    for at in [*range(1, 8), *(draw.randint(1, 25) for _ in range(6))]:
        count = draw.randint(1, 25)
        case.land(f"{sent:04d}.json{draw.choice(['', '.gz'])}", *range(sent, sent + count))
        sent += count
        steps: list[str] = []

        def reach(step: str, flow: str, at: int = at, steps: list[str] = steps) -> None:
            steps.append(step)
            assert flow == FLOW
            if len(steps) == at:
                raise Crash

        with monkeypatch.context() as patched:
            patched.setattr(failpoints, "reach", reach)
            try:
                case.backfill("landing/*.json*", form="json")
            except Crash:
                assert len(steps) == at
        case.came(-sent)  # the run that reads Kafka goes on from the same table
    case.backfill("landing/*.json*", form="json")
    assert case.partitions()[FIRST] == list(range(sent)) and len(case.partitions()[KAFKA]) == 13


def test_what_is_amiss_is_said_and_the_rest_goes_on(case: Filled) -> None:
    whole = case.land("b.json.gz", *range(30)).read_bytes()
    case.put("landing/b.json.gz", whole[:-9])
    case.land("c.json", 1)

    def run(*more: str) -> tuple[int, Any]:
        command = [
            "backfill",
            RAW,
            "--from-files",
            str(case.root / "landing/*"),
            "--format",
            "json",
            "--json",
        ]
        done = CliRunner().invoke(app, [*command, "--project", str(case.root), *more], catch_exceptions=False)
        return done.exit_code, json.loads(done.stdout)

    states = lambda: [(Path(one["path"]).name, one["state"]) for one in run("--dry-run")[1]]  # noqa: E731
    assert states() == [("b.json.gz", "new"), ("c.json", "new")]
    assert RAW not in case.lake.places()
    for _ in range(2):  # and is tried again
        code, done = run()
        assert code == 1 and list(done["amiss"].values()) == ["OSError: Truncated compressed stream"]
    assert states() == [("b.json.gz", "unreadable"), ("c.json", "taken")]
    assert standings(case.definitions)[0].amiss == 1
    case.put("landing/b.json.gz", whole)
    case.land("c.json", 1, 2)
    assert states() == [("b.json.gz", "new"), ("c.json", "changed")]
    code, done = run()
    assert code == 1 and (done["records"], list(done["amiss"].values())) == (
        30,
        ["changed after it was taken"],
    )
    assert case.partitions() == {FIRST: [1, *range(30)]}
    assert run()[0] == 0


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_file_that_is_written_while_it_is_taken_is_told(
    case: Filled, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    unchanged, brought = Folder.unchanged, Folder._path

    def still(self: Folder, file: File) -> bool:
        return not (how == "changed" and file.path.endswith("a.json")) and unchanged(self, file)

    def path(self: Folder, file: File) -> Path:
        if how == "gone" and file.path.endswith("a.json"):
            raise FileNotFoundError(file.path)
        return brought(self, file)

    monkeypatch.setattr(Folder, "unchanged", still)
    monkeypatch.setattr(Folder, "_path", path)
    case.land("a.json", 1)
    case.land("b.json", 2)
    done = case.backfill("landing/*")
    assert (done.files, done.records) == (1, 1)
    assert {Path(file).name for file in done.amiss} == {"a.json"}
    assert all("while it was read; take it again" in why for why in done.amiss.values())
    monkeypatch.undo()
    done = case.backfill("landing/*")
    assert (done.files, done.records, done.amiss) == (1, 1, {})
    assert case.partitions() == {FIRST: [2, 1]}


def test_a_file_that_grows_after_some_of_it_was_taken_is_told_as_it_will_be(
    case: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfilling, "AT_ONCE", 5)
    unchanged, looks = Folder.unchanged, list[str]()

    def still(self: Folder, file: File) -> bool:
        looks.append(file.path)
        return len(looks) == 1 and unchanged(self, file)

    monkeypatch.setattr(Folder, "unchanged", still)
    case.land("a.json", *range(9))
    said = ["changed after 5 of its records were taken"]
    done = case.backfill("landing/*")
    assert (done.records, [*done.amiss.values()]) == (5, said)
    monkeypatch.undo()
    assert case.partitions() == {FIRST: [0, 1, 2, 3, 4]}


def test_what_can_not_be_backfilled(tmp_path: Path, interpreted: SparkSession) -> None:
    more = {"bronze/paid.py": "import headwater as hw\npaid = hw.files('in/*')\n"}
    case = Filled(tmp_path / "project", interpreted, {**ONLY, **BELOW, **more})
    case.land("a.json", 1)
    refused: dict[str, tuple[Code, str]] = {
        "bronze.paid": ("BACKFILL_NEEDS_TOPIC", r"takes what lies at in/\*; put the files there"),
        "silver.visits": ("BACKFILL_NEEDS_TOPIC", r"; history enters a table of bronze: bronze\.raw"),
        "bronze.nope": ("UNKNOWN_TABLE", r"did you mean bronze\."),
    }
    for table, (code, why) in refused.items():
        with raises_code(code, table=table, match=why):
            backfill(case.definitions, table, str(case.root / "landing/*"))
        with raises_code(code, table=table, match=why):
            plan(case.definitions, table, str(case.root / "landing/*"))
    with raises_code("NO_FILES", file="nowhere/*"):
        case.backfill("nowhere/*")
    case.land("b", 1)
    with raises_code("FORMAT_UNKNOWN"):
        case.backfill("landing/*")
    case.backfill("landing/*", form="json")
    (case.lake.place(f"{RAW}__files").path.parent).rename(tmp_path / "aside")
    with raises_code("LEDGER_DISAGREES", match="knows of 0 batches, the table of 1"):
        case.backfill("landing/*", form="json")


def test_a_delta_table_is_history_too(case: Filled) -> None:
    old = case.root / "old"
    for first in (0, 10, 20):
        rows = pa.table({"n": list(range(first, first + 10)), "at": [EPOCH + first] * 10})
        write_deltalake(old, rows, mode="append")
    write_deltalake(old, pa.table({"n": [99], "at": [EPOCH]}), mode="overwrite")  # its past is not its own
    DeltaTable(old).restore(2)
    assert {file.state for file in plan(case.definitions, RAW, str(old))} == {"new"}
    assert case.backfill("old").records == 30
    assert case.partitions() == {FIRST: list(range(30))}
    assert (case.backfill("old").records, case.backfill("old").known) == (0, 3)
    write_deltalake(old, pa.table({"n": [30], "at": [EPOCH]}), mode="append")
    assert case.backfill("old").records == 1
    DeltaTable(old).optimize.compact()
    with raises_code(
        "ADOPTED_TABLE_REWRITTEN",
        file="old",
        match=r"old was rewritten after 4 of its files were taken .* nothing",
    ):
        case.backfill("old")
    assert case.partitions() == {FIRST: list(range(31))}
    write_deltalake(case.root / "parts", pa.table({"n": [1], "day": ["x"]}), partition_by=["day"])
    with raises_code(
        "NOT_ADOPTABLE",
        file="parts",
        match=r"parts: its files lack the columns .* partitioned by \(day\); write",
    ):
        case.backfill("parts")


def test_windows_below(tmp_path: Path, interpreted: SparkSession) -> None:
    """Corrected windows are at once as if the history had come in time; final ones, after a rebuild."""
    case = Filled(tmp_path / "project", interpreted, {**ONLY, **BELOW})
    tables = ("silver.visits", "gold.corrected", "gold.ended")
    windows = lambda table: sorted(  # noqa: E731
        (int(row["since"].timestamp()) - EPOCH, row["visits"]) for row in case.found(table)
    )

    case.came(*range(1000, 1200, 5))
    case.drain(*tables)
    ended = [(960, 4), (1020, 12), (1080, 12)]
    assert windows("gold.ended") == ended and windows("gold.corrected") == [*ended, (1140, 12)]
    case.land("a.json", *range(0, 120, 10), 1010)
    case.land("b.json", *range(120, 200, 10))
    case.backfill("landing/*.json")
    case.drain(*tables)
    assert windows("gold.corrected") == [
        (0, 6),
        (60, 6),
        (120, 6),
        (180, 2),
        (960, 5),
        *ended[1:],
        (1140, 12),
    ]
    assert windows("gold.ended") == ended and len(case.found("gold.ended_late")) == 21

    # What comes after 1010 in its own partition is late for good.
    assert case.rebuild("gold.ended").swapped
    assert windows("gold.ended") == [(0, 6), (60, 6), (960, 5), *ended[1:]]
    assert len(case.found("gold.ended_late")) == 8


@pytest.fixture
def live(tmp_path: Path, spark: SparkSession, broker: str) -> Iterator[tuple[Filled, Any, Any]]:
    """A flow that reads Kafka, at work, and a producer."""
    conf = f"kafka: {{bootstrap.servers: '{broker}'}}\ntrigger: 100ms\n"
    definition = "import headwater as hw\nraw = hw.topic('history')\n"
    case = Filled(tmp_path / "project", spark, {"conf/local.yaml": conf, "bronze/raw.py": definition})
    create_topics({"bootstrap.servers": broker}, [Topic("history", 1)])
    context = replace(case.begun(once=False), bootstrap=broker)
    lease = Lease(RAW, case.lake.flow_folder(RAW))
    flow = flow_of(context, RAW)
    worker = threading.Thread(target=flow.run)
    worker.start()
    try:
        yield case, context, Producer({"bootstrap.servers": broker})
    finally:
        context.stop.set()
        worker.join()
        lease.release()


def test_the_process_that_writes_the_table_does_it(live: tuple[Filled, Any, Any]) -> None:
    case, context, producer = live
    for n in range(3000):
        producer.produce("history", json.dumps({"n": n}).encode(), partition=0)
    case.land("a.json.gz", *range(500))
    case.land("b.json", *range(500, 900))
    asked = [
        threading.Thread(target=case.backfill, args=("landing/*",), kwargs={"form": "json"}) for _ in "ab"
    ]
    for thread in asked:  # two at once
        thread.start()
    assert producer.flush(30) == 0
    for thread in asked:
        thread.join()
    assert case.backfill("landing/*", form="json").known == 2
    board = context.board
    while board.flows[RAW].rows_in < 3000:
        context.stop.wait(0.05)
        assert board.flows[RAW].state == "running"
    assert case.partitions() == {
        ("main", "history", 0): list(range(3000)),
        ("files", "history", 0): list(range(900)),
    }


def test_what_comes_from_kafka_does_not_wait_for_the_archive(
    live: tuple[Filled, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, _, producer = live
    case.land("a.json", *range(50))
    ready, batches = Intake.ready, 0

    def waits(intake: Intake) -> None:
        nonlocal batches
        batches += 1
        if batches == 3:  # of five
            producer.produce("history", json.dumps({"n": -1}).encode(), partition=0)
            producer.flush(30)
            assert until(lambda: -1 in case.partitions().get(("main", "history", 0), []), within=20)
        ready(intake)

    monkeypatch.setattr("headwater.flows.backfill.AT_ONCE", 10)
    monkeypatch.setattr(Intake, "ready", waits)
    assert case.backfill("landing/*").records == 50
    assert case.partitions()["files", "history", 0] == [*range(50)]


def test_a_run_that_ends_ends_what_it_was_asked_for(
    live: tuple[Filled, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, context, _ = live
    case.land("a.json", *range(50))
    step = Intake.step

    def ends(intake: Intake) -> Any:
        context.stop.set()
        return step(intake)

    monkeypatch.setattr("headwater.flows.backfill.AT_ONCE", 10)
    monkeypatch.setattr(Intake, "step", ends)
    with raises_code("STOPPED"):
        case.backfill("landing/*")


HEADWATER = str(Path(sys.executable).parent / "headwater")


@pytest.mark.torture
@pytest.mark.parametrize("archive", ["landing/*.json.gz", "a-delta-table"])
def test_processes_that_are_killed_take_each_file_once(case: Filled, archive: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    sent = 0
    command = [HEADWATER, "backfill", RAW, "--from-files", str(case.root / archive)]

    def run(fail: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HEADWATER_FAIL_POINT": fail}
        arguments = [*command, "--project", str(case.root)]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)

    for step in failpoints.STEPS:
        count = draw.randint(11, 100)
        if archive.endswith("gz"):
            case.land(f"{sent:06d}.json.gz", *range(sent, sent + count))
        else:
            rows = pa.table({"n": list(range(sent, sent + count)), "at": [EPOCH] * count})
            write_deltalake(case.root / archive, rows, mode="append")
        sent += count
        killed = run(f"{step}:{FLOW}:{draw.randint(1, 2)}=python")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run()
    assert done.returncode == 0, done.stderr
    assert case.partitions() == {FIRST: list(range(sent))}
