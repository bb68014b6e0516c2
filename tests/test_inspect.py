"""What `ls`, `describe` and `graph` say, from definitions and logs; no rows are read, no Spark started."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors.codes import Code
from headwater.project.load import Project, load_project
from headwater.query import inspect
from headwater.query.inspect.describe import Description, describe
from headwater.storage import log, summary
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

BRONZE = '''"""Readings as they arrive."""
import headwater as hw
raw = hw.topic("readings", max_rows_per_batch=1000)
'''
SUITE = """{"name": "silver.readings", "expectations": [
  {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "host"}},
  {"type": "expect_column_values_to_be_between", "kwargs": {"column": "usage", "min_value": 0}}
]}"""

SILVER = '''"""Readings, decoded."""
import headwater as hw

FIELDS = hw.json("host STRING, usage DOUBLE")

@hw.table(source=["bronze.raw", "reference.hosts"], decode=FIELDS, event_time="at", delay="5 seconds")
def readings(raw, hosts):
    """One row per reading."""
    return raw

@hw.alert(topic="hot", source="bronze.raw", decode=FIELDS)
def hot(raw):
    """Hot readings."""
    return raw

@hw.table(source="silver.readings", keys=["host"])
def latest(readings):
    """The latest reading of each host."""
    return readings

sink = hw.kafka_sink("silver.latest", topic="latest-readings")
'''
GOLD = """CREATE STREAMING TABLE gold.by_host COMMENT 'Readings per host'
AS SELECT window.start AS start, upper(host) AS host, avg(usage) AS usage
FROM STREAM silver.readings WATERMARK at DELAY OF INTERVAL 10 SECONDS
GROUP BY window(at, '5 minutes'), upper(host)"""
COUNTS = "CREATE MATERIALIZED VIEW gold.counts AS SELECT host, count(*) AS n FROM silver.latest GROUP BY host"

READINGS = pa.schema([("host", pa.string()), ("tags", pa.struct([("Kind", pa.string())]))])


def append(root: Path, name: str, counts: list[int], schema: pa.Schema = READINGS, **properties: str) -> None:
    """One commit with one file for each count of rows."""
    target = Target(Lake(root / ".headwater" / "lake").create(name, schema, properties=properties))
    sequence = target.last(name) + 1
    (target.place.path / f"{sequence:012d}-test").mkdir()
    files = [f"{sequence:012d}-test/{at}.parquet" for at in range(len(counts))]
    for file, count in zip(files, counts, strict=True):
        rows = pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
        pq.write_table(rows, target.place.path / file)
    target.append(
        files, Identity(name, 1, sequence, {"bronze.raw": {"generation": 1, "version": 4, "files": 0}})
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of which two tables are written, one of them by a definition that is gone."""
    root: Path = tmp_path_factory.mktemp("project")
    for folder in ("bronze", "silver", "gold", "quality", "conf/reference"):
        (root / folder).mkdir(parents=True)
    (root / "conf" / "local.yaml").write_text("kafka: embedded\nparallelism: 3\n")
    (root / "conf" / "reference" / "hosts.csv").write_text("host,site\na,north\n")
    (root / "conf" / "reference" / "hosts.ddl").write_text("host STRING, site STRING")
    (root / "bronze" / "raw.py").write_text(BRONZE)
    (root / "silver" / "readings.py").write_text(SILVER)
    (root / "gold" / "by_host.sql").write_text(GOLD)
    (root / "quality" / "silver.readings.json").write_text(SUITE)
    append(root, "silver.readings", [3, 2])
    append(root, "silver.readings", [1])
    append(root, "quarantine.silver_readings", [4])
    append(root, "silver.dropped", [1])
    partial = pa.schema([*READINGS, ("_partial", pa.struct([("n", pa.int64())]))])
    append(root, "gold.by_host", [1], partial, **{"delta.enableChangeDataFeed": "true"})
    return root


@pytest.fixture(scope="module")
def project(root: Path) -> Project:
    return load_project(root)


def test_listing_has_every_table_with_its_state(project: Project) -> None:
    found = {line.name: line for line in inspect.tables(project)}
    assert [(line.name, line.kind, line.status) for line in found.values()] == [
        ("bronze.raw", "topic", "not written yet"),
        ("silver.readings", "python", "written"),
        ("quarantine.silver_readings", "quarantine", "written"),
        *sorted(
            [("silver.latest", "python", "not written yet"), ("gold.by_host", "sql", "written")],
            key=lambda line: list(project.tables).index(line[0]),
        ),
        ("silver.dropped", "unknown", "no definition"),
        ("reference.hosts", "reference", "written"),
    ]
    assert found["silver.readings"].source == "bronze.raw, reference.hosts"
    assert found["bronze.raw"].source == "kafka:readings" and found["bronze.raw"].state is None


def test_numbers_come_from_the_log(project: Project) -> None:
    place = Lake(project.conf.lake).place("silver.readings")
    state = summary.of(place)
    files = list(place.path.glob("*-test/*.parquet"))
    assert (state.rows, state.version, state.generation) == (6, 2, 1)
    assert (state.files, state.bytes) == (3, sum(file.stat().st_size for file in files))
    assert state.last_commit == log.read(place.path, 2).at
    assert state.flows["silver.readings"]["sequence"] == 1


def test_no_rows_are_read(project: Project) -> None:
    """Counting works where the data files are gone: only the log is read."""
    place = Lake(project.conf.lake).place("silver.dropped")
    for file in place.path.glob("*-test/*.parquet"):
        file.unlink()
    assert summary.of(place).rows == 1


def test_empty_table_holds_nothing(tmp_path: Path) -> None:
    state = summary.of(Lake(tmp_path).create("silver.x", READINGS, properties={}))
    assert (state.rows, state.version, state.files, state.bytes) == (0, 0, 0, 0)


def test_description_of_a_decoded_table(project: Project) -> None:
    found = describe(project, "silver.readings")
    assert (found.file, found.comment) == ("silver/readings.py", "One row per reading.")
    assert found.columns == {"host": "string", "tags": "struct<Kind:string>"}
    assert found.sources == ("bronze.raw", "reference.hosts")
    assert set(found.read_by) == {"silver.latest", "gold.by_host"}
    assert (found.event_time, found.delay, found.emit, found.keys) == ("at", "5 seconds", "append", ())
    assert (found.quarantine, found.quarantined) == ("quarantine.silver_readings", 4)
    assert found.expectations == 2
    assert found.limits["parallelism"] == 3
    assert found.state is not None and found.state.rows == 6


def test_description_of_an_aggregate(project: Project) -> None:
    found = describe(project, "gold.by_host")
    assert found.keys == ("window(at, '5 minutes')", "upper(host)")
    assert (found.emit, found.delay) == ("update", "10 seconds")
    assert "_partial" not in found.columns
    assert found.quarantine is None and found.expectations is None


def test_description_of_a_topic_that_is_not_written(project: Project) -> None:
    found = describe(project, "bronze.raw")
    assert found.state is None
    assert found.sources == ("kafka:readings",) and set(found.read_by) == {"silver.readings", "silver.hot"}
    assert found.columns["value"] == "binary"
    assert found.limits["max_rows_per_batch"] == 1000


def test_description_of_what_has_no_definition_of_its_own(project: Project) -> None:
    rejects, gone = describe(project, "quarantine.silver_readings"), describe(project, "silver.dropped")
    assert (rejects.file, rejects.sources) == ("silver/readings.py", ("silver.readings",))
    assert (gone.file, gone.kind, gone.limits) == (None, "unknown", {})
    reference: Description = describe(project, "reference.hosts")
    assert reference.columns == {"host": "string", "site": "string"}
    assert (reference.file, reference.read_by) == ("conf/reference/hosts.csv", ("silver.readings",))


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("readings", "UNKNOWN_TABLE", "did you mean silver.readings"),
        ("gold.by_hosts", "UNKNOWN_TABLE", "did you mean gold.by_host"),
        ("zzz", "UNKNOWN_TABLE", "known: bronze.raw"),
        ("silver.hot", "NOT_A_TABLE", "alert to the topic hot"),
    ],
)
def test_unknown_table(project: Project, name: str, code: Code, reason: str) -> None:
    with raises_code(code) as refused:
        describe(project, name)
    assert reason in str(refused.value) and "\n" not in str(refused.value)


def command(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--project", str(root)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_ls(root: Path) -> None:
    lines = {line.split()[0]: line.split() for line in command(root, "ls").splitlines() if line.strip()}
    assert lines["silver.readings"][2:7] == [
        "bronze.raw,",
        "reference.hosts",
        "6",
        "2",
        lines["silver.readings"][6],
    ]
    assert lines["bronze.raw"][-3:] == ["not", "written", "yet"]
    assert lines["silver.dropped"][-2:] == ["no", "definition"]
    assert lines["silver.hot"] == ["silver.hot", "bronze.raw", "hot"]
    to = "silver.latest->latest-readings"
    assert lines[to] == [to, "silver.latest", "kafka:latest-readings", "update"]


def test_ls_as_json(root: Path) -> None:
    found: dict[str, Any] = json.loads(command(root, "ls", "--json"))
    readings = next(table for table in found["tables"] if table["name"] == "silver.readings")
    assert (readings["layer"], readings["state"]["rows"]) == ("silver", 6)
    assert readings["state"]["last_commit"].endswith("Z")
    assert found["alerts"] == [{"name": "silver.hot", "source": "bronze.raw", "topic": "hot"}]
    sink = {"table": "silver.latest", "to": "kafka:latest-readings", "on": "update"}
    assert found["sinks"] == [{"name": "silver.latest->latest-readings", **sink}]


def test_describe(root: Path) -> None:
    text = command(root, "describe", "silver.readings")
    for line in (
        "silver.readings  python",
        "event time     at, delay 5 seconds",
        "expectations   2",
        "quarantine     quarantine.silver_readings, 4 rows",
        "last batch     1 of silver.readings, which has consumed bronze.raw to version 4",
        "tags    struct<Kind:string>",
    ):
        assert line in text.splitlines()
    assert json.loads(command(root, "describe", "silver.readings", "--json"))["state"]["rows"] == 6
    assert "holds          nothing yet" in command(root, "describe", "bronze.raw")


def test_a_view_has_no_bound_and_takes_none(root: Path, tmp_path: Path) -> None:
    root = shutil.copytree(root, tmp_path / "copy")
    (root / "gold/by_host.sql").write_text(COUNTS)
    assert "a batch        all that has changed, 3 tasks" in command(root, "describe", "gold.counts")
    bounded = COUNTS.replace(" AS SELECT", " TBLPROPERTIES ('headwater.max_rows_per_batch' = '9') AS SELECT")
    (root / "gold/by_host.sql").write_text(bounded)
    with raises_code("PROPERTY_INVALID", match="max_rows_per_batch is of a table that"):
        load_project(root)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["reconcile", "--since-last"], "name a table"),
        (["reconcile", "--window", "2026-01-01/2026-01-02"], "name a table"),
        (["rebuild", "silver.latest", "--clean"], "are of all tables"),
        (["rebuild", "silver.latest", "--abort"], "are of all tables"),
        (["state", "--key", "host=a"], "of one table: name it"),
        (["state", "gold.by_host", "--key", "host"], "write name=value"),
    ],
)
def test_an_option_that_would_not_be_heeded_is_refused(root: Path, arguments: list[str], says: str) -> None:
    done = commands.call(arguments, root)
    assert done.returncode == 2 and says in done.stderr


def test_graph(root: Path) -> None:
    assert "└─ kafka:latest-readings" in command(root, "graph")
    assert command(root, "graph", "--format", "mermaid").startswith("flowchart LR\n")
