"""System 1 from Kafka to gold, by us, by PyFlink and by Spark alone, over the same topic.

PyFlink does it in one job, which reads the topic for bronze (records as they are) and for silver (decoded,
with the host's site, held to the same expectations by a WHERE); bronze and silver are Parquet files, gold is
kept in Paimon window by window, as late readings correct it. It does not read silver from bronze, and gold
from silver, as tables. Spark does, by plain Structured Streaming (`bench.peers.streaming`) and by Spark
Declarative Pipelines, whose gold is a view that is computed whole. None of them keeps what it rejects.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench import lab
from bench.peers import flink, spark
from bench.peers.flink import Insert
from headwater.common.scratch import OFF_TIES
from headwater.connectors import kafka
from headwater.project.load import Project
from headwater.runtime import sessions
from headwater.storage.lake import Lake

LAYERS = ("bronze", "silver", "gold")
TABLES = {"bronze": "bronze.iot_metrics", "silver": "silver.cpu_metrics", "gold": "gold.cpu_usage_5m"}
_PLACE = "`partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL"
_TIME = "TIMESTAMP_LTZ(3)"
_WINDOW = 300_000  # milliseconds
_SILVER = """SELECT hostname, cpu, `usage`, occurred_at, TO_TIMESTAMP_LTZ(occurred_at, 3) AS event_time,
    {site} AS site, {threshold} AS alert_threshold, `partition`, `offset` FROM readings
    WHERE hostname IS NOT NULL AND REGEXP(cpu, '^cpu[1-9][0-9]*$') AND occurred_at >= 0
    AND occurred_at <= 253402300799999 AND (`usage` IS NULL OR `usage` BETWEEN 0 AND 100)"""
_GOLD = f"""SELECT starts, starts + INTERVAL '{_WINDOW // 1000}' SECOND(3), hostname, cpu, AVG(`usage`),
    MAX(`usage`), MAX(event_time)
    FROM (SELECT *, TO_TIMESTAMP_LTZ(occurred_at - MOD(occurred_at, {_WINDOW}), 3) AS starts FROM cpu_metrics)
    GROUP BY starts, hostname, cpu"""
# What is compared of all rows: of bronze and silver a sum of their hashes.
_WINDOW_ROWS = f"""SELECT epoch_ms(window_start), hostname, cpu, round(avg_usage * {OFF_TIES}, 6), max_usage,
    epoch_ms(last_event) FROM gold ORDER BY ALL"""
_SUMS = {
    "bronze": """SELECT count(*), sum(hash("partition"::INT, "offset"::BIGINT, "value")) FROM bronze""",
    "silver": """SELECT count(*), sum(hash(hostname, cpu, usage, occurred_at, epoch_ms(event_time), site,
        alert_threshold)) FROM silver""",
}
Tables = dict[str, ds.Dataset]  # bronze, silver and gold


class Drained(NamedTuple):
    """How a system made the tables once.

    Attributes:
        seconds: that it took.
        tables: those that it made.
    """

    seconds: float
    tables: Tables


def measure(rows: int, folder: Path) -> dict[str, Any]:
    """{cold and warm → {system → records/s; of a peer whose tables equal ours the ratio of our rate to its}}.

    Cold is from a process's start to the end of its first drain. Warm is a second one in the same process, to
    the end of the last batch: ours from the beginning of the first, PyFlink's without planning. Declarative
    pipelines are run by a command, so always cold.
    """
    project = lab.load(lab.prepare())
    lab.preload(project, rows)
    rows = lab.records(project)
    bootstrap = kafka.ensure_running(project.root, project.conf)
    peers = {
        "pyflink": _by_flink(project, bootstrap, folder / "flink"),
        **_by_spark(project, bootstrap, folder),
    }
    ours = {"cold": _cold(project), "warm": _warm(project)}
    return {
        "records": rows,
        **{turn: _compared(rows, ours[turn], turn, peers) for turn in ours},
    }


def _compared(
    rows: int, ours: Drained, turn: str, peers: Mapping[str, Mapping[str, Drained]]
) -> dict[str, Any]:
    found: dict[str, Any] = {"ours": round(rows / ours.seconds)}
    for name, turns in peers.items():
        if turn not in turns:
            continue
        theirs = turns[turn]
        if wrong := _different(ours.tables, theirs.tables):
            print(f"{name}, {turn}: its {wrong} differs from ours", file=sys.stderr, flush=True)
            found[name] = {"differs": wrong}
        else:
            found[name] = {
                "records_per_second": round(rows / theirs.seconds),
                "ratio": round(theirs.seconds / ours.seconds, 2),
            }
    return found


def _by_flink(project: Project, bootstrap: str, folder: Path) -> dict[str, Drained]:
    jobs = {turn: _inserts(turn) for turn in ("cold", "warm")}
    ran = flink.run(folder, _sources(bootstrap, project.root), jobs)
    found = {}
    for turn in jobs:
        each = ran[turn]
        if isinstance(each, str):
            raise SystemExit(f"PyFlink, {turn}: {each}")
        tables = {
            layer: ds.dataset(flink.place(folder, f"{layer}_{turn}"), format="parquet") for layer in LAYERS
        }
        found[turn] = Drained(each.ready if turn == "cold" else each.seconds, tables)
    return found


def _by_spark(project: Project, bootstrap: str, folder: Path) -> dict[str, dict[str, Drained]]:
    streaming, pipelines = folder / "streaming", folder / "pipelines"
    hosts = project.root / "conf" / "reference" / "hosts.csv"
    cold, warm = spark.streamed(streaming, bootstrap, hosts)
    declared = spark.declared(pipelines, bootstrap, hosts)
    return {
        "structured_streaming": {
            "cold": Drained(cold, _delta({layer: streaming / "cold" / layer for layer in LAYERS})),
            "warm": Drained(warm, _delta({layer: streaming / "warm" / layer for layer in LAYERS})),
        },
        "declarative_pipelines": {
            "cold": Drained(declared, _delta({layer: pipelines / "warehouse" / layer for layer in LAYERS}))
        },
    }


def _warm(project: Project) -> Drained:
    sessions.start(project.conf)
    for _ in range(2):
        fresh = lab.in_lake(project, "bench", fresh=True)
        seconds, _ = lab.drain(fresh, TABLES["gold"])
    return Drained(seconds, _ours(fresh))


def _cold(project: Project) -> Drained:
    """From the start of a process that drains the tables, without their alert, to its end."""
    with (project.root / "cold.log").open("wb") as log:
        command = [sys.executable, "-m", "bench.lab", project.root, TABLES["gold"]]
        began = time.monotonic()
        subprocess.run(command, stdout=log, stderr=log, check=True, cwd=lab.ROOT)
        return Drained(time.monotonic() - began, _ours(lab.in_lake(project, "cold")))


def _sources(servers: str, project: Path) -> list[str]:
    topic = (
        "'connector' = 'kafka', 'topic' = 'iot-data-input', "
        f"'properties.bootstrap.servers' = '{servers}', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    )
    with (project / "conf" / "reference" / "hosts.csv").open() as file:
        hosts = list(csv.DictReader(file))
    site = _case(f"WHEN '{host['hostname']}' THEN '{host['site']}'" for host in hosts)
    threshold = _case(f"WHEN '{host['hostname']}' THEN {host['alert_threshold']}E0" for host in hosts)
    return [
        f"CREATE TABLE records (`key` BYTES, `value` BYTES, {_PLACE}, `timestamp` {_TIME} METADATA VIRTUAL) "
        f"WITH ({topic}, 'key.format' = 'raw', 'key.fields' = 'key', 'value.format' = 'raw', "
        "'value.fields-include' = 'EXCEPT_KEY')",
        "CREATE TABLE readings (hostname STRING, cpu STRING, `usage` DOUBLE, occurred_at BIGINT, "
        f"{_PLACE}) WITH ({topic}, 'format' = 'json', 'json.ignore-parse-errors' = 'true')",
        f"CREATE VIEW cpu_metrics AS {_SILVER.format(site=site, threshold=threshold)}",
    ]


def _case(whens: Any) -> str:
    return f"CASE hostname {' '.join(whens)} END"


def _inserts(turn: str) -> list[Insert]:
    place = "`partition` INT, `offset` BIGINT"
    return [
        Insert(
            f"bronze_{turn}",
            f"`key` BYTES, `value` BYTES, {place}, `timestamp` {_TIME}",
            "SELECT `key`, `value`, `partition`, `offset`, `timestamp` FROM records",
        ),
        Insert(
            f"silver_{turn}",
            f"hostname STRING, cpu STRING, `usage` DOUBLE, occurred_at BIGINT, event_time {_TIME}, "
            f"site STRING, alert_threshold DOUBLE, {place}",
            "SELECT * FROM cpu_metrics",
        ),
        Insert(
            f"gold_{turn}",
            f"window_start {_TIME}, window_end {_TIME}, hostname STRING, cpu STRING, avg_usage DOUBLE, "
            f"max_usage DOUBLE, last_event {_TIME}",
            _GOLD,
            key="window_start, hostname, cpu",
        ),
    ]


def _ours(project: Project) -> Tables:
    lake = Lake(project.conf.lake)
    return _delta({layer: lake.place(TABLES[layer]).path for layer in LAYERS})


def _delta(folders: Mapping[str, Path]) -> Tables:
    return {layer: DeltaTable(folder).to_pyarrow_dataset() for layer, folder in folders.items()}


def _different(ours: Tables, theirs: Tables) -> str:
    """The layer whose rows differ; "": none."""
    with duckdb.connect() as database:

        def rows(tables: Tables, layer: str) -> list[Any]:
            database.register(layer, tables[layer])
            return database.execute(_SUMS.get(layer, _WINDOW_ROWS)).fetchall()

        return next((layer for layer in LAYERS if rows(ours, layer) != rows(theirs, layer)), "")
