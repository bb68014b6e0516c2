"""The report of a batch: what it says of each kind of flow, and that its rows add up."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from landed import Landed
from pyspark.sql import SparkSession
from visits import COUNTS, ENDED, RAW, TOP, VISITS, Visits

from headwater.common.progress import Board
from headwater.common.report import BatchReport, Stopwatch
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import Topic
from headwater.flows.declared import flow_of
from headwater.project.load import load_project
from headwater.run.supervisor import Options, Run
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.delta import files

NAMED, RUNS, SENT = "gold.named", "gold.runs", f"{COUNTS}->mine"
STEPS = ["pin", "build", "commit", "seal"]
FILES = {
    "gold/named.py": '''import headwater as hw
from headwater.connectors.sinks import Sink

@hw.table(source=["gold.counts", "reference.names"])
def named(counts, names):
    """Totals with their users' names."""
    return counts.join(names, "user", "left")


class Mine(Sink):
    """Takes all, keeps nothing."""

    def open(self, table):
        return None

    def write(self, changes):
        pass

    def close(self):
        pass


mine = hw.sink("gold.counts", Mine, name="mine")
''',
    "gold/runs.py": '''import headwater as hw

@hw.process(source="silver.visits", keys=["user"], event_time="event_time", delay="10 seconds",
            columns="user STRING, n BIGINT", state="n BIGINT")
def runs(row, user):
    """The number of each visit."""
    user.state = {"n": (user.state["n"] if user.state else 0) + 1}
    yield {"user": row["user"], **user.state}
''',
    "conf/reference/names.csv": "user,name\na,Anna\nb,Bert\n",
    "conf/reference/names.ddl": "user STRING, name STRING\n",
    "quality/silver.visits.json": json.dumps(
        {
            "name": "silver.visits",
            "expectations": [
                {
                    "id": "small",
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "n", "max_value": 6},
                    "meta": {"action": "drop"},
                },
                {
                    "id": "not five",
                    "type": "expect_column_values_to_not_be_in_set",
                    "kwargs": {"column": "n", "value_set": [5]},
                    "meta": {"action": "quarantine"},
                },
            ],
        }
    ),
}
TABLES = (VISITS, COUNTS, ENDED, RUNS, TOP, NAMED, SENT)


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Visits:
    return Visits(tmp_path / "project", interpreted, FILES)


def reported(case: Visits, *names: str) -> dict[str, BatchReport]:
    """Drain these flows; what `run --json` says of the batch of each."""
    lines = StringIO()
    context = replace(case.once(), board=Board(lines, StringIO()))
    context.heads.end(RAW)
    for name in names:
        flow_of(context, name).run()
        context.heads.end(name)
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {event["event"] for event in events} == {"batch"}
    found = {event["flow"]: BatchReport.parse(event) for event in events}
    assert len(found) == len(events) == len(names)
    for event in events:
        report = found[event["flow"]]
        assert report == context.board.flows[report.flow].recent[-1]
        assert event == {"event": "batch", **report.json()}
        assert event["freshness"] == report.freshness
    return found


def records(case: Visits, version: int) -> list[dict[str, Any] | None]:
    """The records of a version of bronze; None: one that can't be decoded."""
    found = []
    (commit,) = log.commits(case.bronze.place.path, after=version - 1, upto=version)
    for file in commit.added:
        for value in pq.read_table(file.path, partitioning=None)["value"].to_pylist():
            found.append(None if value == b"{" else json.loads(value))
    return found


def head(case: Visits, name: str) -> int:
    return log.head(case.lake.place(name).path)


def test_the_rows_of_every_batch_add_up(case: Visits) -> None:
    draw = random.Random(5)
    written = late = finals = 0
    for turn in range(1, 4):
        case.visit(draw, 60)
        found = reported(case, *TABLES)
        sent = records(case, turn)
        decoded = [record["n"] for record in sent if record is not None]
        returned = [n for n in decoded if n >= 0]  # by the function

        visits = found[VISITS]
        malformed = len(sent) - len(decoded)
        assert visits.failed == {
            "malformed": malformed,
            "small": sum(n > 6 for n in returned),
            "not five": returned.count(5),
        }
        assert all(visits.failed.values())
        assert (visits.rows_in, visits.rows_read) == (60, 60)
        assert visits.rows_in == visits.failed["malformed"] + len(decoded)
        assert visits.quarantined == malformed + returned.count(5)
        assert len(returned) == visits.rows_out + visits.dropped + visits.quarantined - malformed
        assert visits.dropped == visits.failed["small"]

        for name in (COUNTS, ENDED, RUNS):
            assert found[name].rows_in == found[name].rows_read == visits.rows_out, name
            assert (found[name].quarantined, found[name].dropped, found[name].failed) == (0, 0, {})
        written, late, finals = (
            written + visits.rows_out,
            late + found[ENDED].late,
            finals + found[ENDED].rows_out,
        )
        assert found[ENDED].late == found[RUNS].late
        users = len(case.rows(COUNTS))
        assert found[COUNTS].rows_out == found[TOP].rows_in == users == 3
        assert found[SENT].rows_in == found[SENT].rows_out == found[COUNTS].rows_out
        assert found[NAMED].rows_out == found[COUNTS].rows_out
    assert sum(row[1] for row in case.rows(COUNTS)) == written
    assert len(case.rows(f"{ENDED}_late")) == late > 0
    assert len(case.rows(ENDED)) == finals > 0


def test_what_a_report_says_of_its_batch(case: Visits) -> None:
    draw = random.Random(6)
    case.visit(draw)
    reported(case, *TABLES)
    case.visit(draw)
    found = reported(case, *TABLES)
    for name in TABLES[:-1]:
        report, place = found[name], case.lake.place(name)
        commit = log.read(place.path, report.version)
        assert (report.version, report.generation, report.sequence) == (head(case, name), 1, 1), name
        assert commit.flows[name]["sequence"] == 1
        assert list(report.phases) == STEPS
        assert 0 < sum(report.phases.values()) <= report.seconds
        assert min(report.phases.values()) > 0
        assert commit.at.timestamp() - 0.002 <= report.at and report.began < commit.at.timestamp()
        assert report.offsets == {}
    above = {
        VISITS: RAW,
        COUNTS: VISITS,
        ENDED: VISITS,
        RUNS: VISITS,
        TOP: COUNTS,
        NAMED: COUNTS,
        SENT: COUNTS,
    }
    assert {name: report.inputs for name, report in found.items()} == {
        name: {source: head(case, source)} for name, source in above.items()
    }
    (version,) = (case.root / ".headwater" / "lake" / "_reference" / "reference.names").iterdir()
    assert found.pop(NAMED).references == {"reference.names": version.stem}
    assert all(report.references == {} for report in found.values())

    new = log.read(case.bronze.place.path, 2).added
    assert (found[VISITS].files_read, found[VISITS].bytes_read) == (1, sum(file.size for file in new))
    counts = [Path(path) for path in files(case.lake.place(COUNTS).path)]
    whole = (len(counts), sum(path.stat().st_size for path in counts))
    assert (found[TOP].files_read, found[TOP].bytes_read) == whole
    assert found[TOP].rows_read == len(case.rows(COUNTS))

    sent = found[SENT]
    assert (sent.version, sent.generation, sent.sequence) == (-1, 1, head(case, COUNTS))
    assert list(sent.phases) == ["pin", "send", "seal"]
    assert 0 < sum(sent.phases.values()) <= sent.seconds


def test_what_a_killed_process_had_built_is_not_counted_again(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.visit(random.Random(7))
    reach = failpoints.reach

    def crash(step: str, flow: str) -> None:
        if step == "staged":
            monkeypatch.setattr(failpoints, "reach", reach)
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "reach", crash)
    with pytest.raises(KeyboardInterrupt):
        reported(case, VISITS)
    report = reported(case, VISITS)[VISITS]
    assert (report.version, report.inputs) == (head(case, VISITS), {RAW: 1})
    assert list(report.phases) == ["pin", "commit", "seal"]
    assert (report.rows_in, report.rows_out, report.quarantined, report.failed) == (0, 0, 0, {})


def test_the_report_of_files(tmp_path: Path, interpreted: SparkSession) -> None:
    bronze = "import headwater as hw\npaid = hw.files('landing/*.json*', max_rows_per_batch=4)\n"
    case = Landed(
        tmp_path / "project", interpreted, {"conf/local.yaml": "kafka: embedded\n", "bronze/paid.py": bronze}
    )
    lines = [(case.land(f"{name}.json", *numbers), len(numbers)) for name, numbers in LANDED.items()]
    case.put("landing/d.json.gz", b"no gzip")
    flow = case.drain("bronze.paid").board.flows["bronze.paid"]
    first, second = flow.recent
    assert [(each.rows_in, each.rows_out, each.rows_read) for each in flow.recent] == [(4, 4, 4), (2, 2, 2)]
    assert (first.files_read, second.files_read) == (2, 2)  # the second file is read on in the second batch
    sizes = sum(path.stat().st_size - count for path, count in lines)  # without the ends of lines
    assert sizes <= (first.bytes_read or 0) + (second.bytes_read or 0) <= sizes + 100
    for sequence, report in enumerate(flow.recent):
        assert list(report.phases) == ["read", *STEPS]
        assert sum(report.phases.values()) <= report.seconds
        assert (report.sequence, report.generation, report.inputs) == (sequence, 1, {})
        assert report.freshness is not None
    assert first.offsets == {"files:bronze.paid": {"0": 4}}
    assert second.offsets == {"files:bronze.paid": {"0": 6}}


LANDED = {"a": (1, 2, 3), "b": (4, 5), "c": (6,)}


def test_the_reports_of_a_topic_and_an_alert(tmp_path: Path, broker: str) -> None:
    client, topic, alerts = {"bootstrap.servers": broker}, "reported", "reported-alerts"
    create_topics(client, [Topic(topic, 2), Topic(alerts, 1)])
    text = (
        "import headwater as hw\n"
        f"raw = hw.topic('{topic}', partitions=2)\n"
        f"@hw.alert(topic='{alerts}', source='bronze.raw', decode=hw.json('n BIGINT'))\n"
        "def big(raw):\n    'Large numbers.'\n    return raw.where('n > 6')\n"
    )
    for name, content in {"conf/local.yaml": json.dumps({"kafka": client}), "bronze/raw.py": text}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    values = [json.dumps({"n": n}).encode() for n in range(10)]
    producer = Producer(client)
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % 2)
    assert producer.flush(30) == 0
    board = Board(notices=StringIO())
    assert Run(load_project(tmp_path), Options(once=True), board)() == 0, board.flows
    (source,), (alert,) = board.flows[RAW].recent, board.flows["bronze.big"].recent
    assert source.offsets == alert.offsets == {topic: {"0": 5, "1": 5}}
    assert (source.rows_in, source.rows_out, source.rows_read, source.files_read) == (10, 10, 10, 0)
    assert (source.bytes_read or 0) >= sum(map(len, values))
    assert list(source.phases) == STEPS and sum(source.phases.values()) <= source.seconds
    assert (source.sequence, source.version, source.generation, source.inputs) == (0, 1, 1, {})
    assert source.freshness is not None and source.freshness > 0
    assert (alert.rows_in, alert.rows_out, alert.rows_read) == (10, 3, 10)
    assert (alert.sequence, alert.version, alert.generation, alert.freshness) == (0, -1, None, None)
    assert 0 < alert.phases["addBatch"] <= sum(alert.phases.values()) <= alert.seconds + 0.01


def test_freshness_is_no_less_than_nothing() -> None:
    def report(newest: int | None) -> BatchReport:
        return BatchReport(flow="silver.t", sequence=0, seconds=2.0, at=1_000.5, newest=newest)

    assert [report(newest).freshness for newest in (None, 999_000, 2_000_000)] == [None, 1.5, 0.0]
    assert report(None).began == 998.5


def test_the_laps_of_a_stopwatch_follow_one_another() -> None:
    watch = Stopwatch()
    for phase in "abc":
        watch.lap(phase)
    assert list(watch.phases) == ["a", "b", "c"] and min(watch.phases.values()) >= 0
    assert sum(watch.phases.values()) <= watch.seconds
