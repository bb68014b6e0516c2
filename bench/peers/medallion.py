"""System 1 from Kafka to gold, by PyFlink and by us, over the same topic.

PyFlink does it in one job, which reads the topic for bronze (records as they are) and for silver (decoded,
with the host's site, held to the same expectations by a WHERE); bronze and silver are Parquet files, gold is
kept in Paimon window by window, as late readings correct it. What it does not do: keep what it rejects, and
read silver from bronze, and gold from silver, as tables.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench import lab
from bench.peers import flink
from bench.peers.flink import Insert
from headwater.common.scratch import OFF_TIES
from headwater.connectors import kafka
from headwater.project.load import Project
from headwater.runtime import sessions
from headwater.storage.lake import Lake

TABLES = ("bronze.iot_metrics", "silver.cpu_metrics", "gold.cpu_usage_5m")
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
_MEAN = f"round(avg_usage * {OFF_TIES}, 6)"
_COMPARED = f"epoch_ms(window_start), hostname, cpu, {_MEAN}, max_usage, epoch_ms(last_event)"


def measure(rows: int, folder: Path) -> dict[str, Any]:
    """{cold and warm → our records/s, PyFlink's, the ratio}, and whether the tables of both are equal.

    Cold is from a process's start to its job's end. Warm is PyFlink's second job in its process, without
    planning, and our second drain in ours, from its first batch to the end of its last.
    """
    project = lab.load(lab.prepare())
    lab.preload(project, rows)
    rows = lab.records(project)
    servers = kafka.ensure_running(project.root, project.conf)
    jobs = {turn: _inserts(turn) for turn in ("cold", "warm")}
    theirs = flink.run(folder, _sources(servers, project.root), jobs)
    for turn in theirs.items():
        if isinstance(turn[1], str):
            raise SystemExit(f"PyFlink, {turn[0]}: {turn[1]}")
    cold = _cold(project)
    sessions.start(project.conf)
    for _ in range(2):
        warm_project = lab.in_lake(project, "bench", fresh=True)
        warm, _ = lab.drain(warm_project, TABLES[-1])
    return {
        "records": rows,
        "cold": compared(rows / cold, rows / theirs["cold"].ready),
        "warm": compared(rows / warm, rows / theirs["warm"].seconds),
        "equal": _equal(warm_project, folder),
    }


def compared(ours: float, theirs: float) -> dict[str, float]:
    """Two rates and their ratio: above 1 where we are faster."""
    return {"ours": round(ours), "pyflink": round(theirs), "ratio": round(ours / theirs, 2)}


def _cold(project: Project) -> float:
    """Seconds from the start of a process that drains the tables, without their alert, to its end."""
    with (project.root / "cold.log").open("wb") as log:
        command = [sys.executable, "-m", "bench.lab", project.root, TABLES[-1]]
        began = time.monotonic()
        subprocess.run(command, stdout=log, stderr=log, check=True, cwd=lab.ROOT)
        return time.monotonic() - began


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


def _equal(project: Project, folder: Path) -> bool:
    """Whether bronze and silver have as many rows, and gold the same rows, here and there."""
    ours = [DeltaTable(Lake(project.conf.lake).place(name).path).to_pyarrow_dataset() for name in TABLES]
    theirs = [
        ds.dataset(flink.place(folder, f"{layer}_warm"), format="parquet")
        for layer in ("bronze", "silver", "gold")
    ]
    counts = [[each.count_rows() for each in side] for side in (ours, theirs)]
    return counts[0] == counts[1] and _rows(ours[2].to_table()) == _rows(theirs[2].to_table())


def _rows(gold: pa.Table) -> list[Any]:
    with duckdb.connect() as database:
        database.register("gold", gold)
        return database.execute(f"SELECT {_COMPARED} FROM gold ORDER BY ALL").fetchall()
