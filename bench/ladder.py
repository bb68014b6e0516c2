"""Throughput, rung by rung: 3 M rows preloaded in Kafka, warm, each rung a ratio to Kafka → nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from bench import lab
from headwater.connectors import kafka
from headwater.project.load import Project
from headwater.runtime import sessions

ROWS = 3_000_000
REPEATS = 3  # after one run that warms up


def measure(rows: int = ROWS) -> dict[str, Any]:
    """{rung → rows/s (median), its runs, and the ratio to Kafka → nothing}."""
    project = lab.load(lab.prepare())
    lab.preload(project, rows)
    spark = sessions.start(project.conf)
    bootstrap = kafka.ensure_running(project.root, project.conf)
    options = kafka.spark_options(project.conf, bootstrap)

    ungated = replace(project, suites={})

    def noop(options: dict[str, str]) -> tuple[float, int]:
        began = time.monotonic()
        frame = spark.read.format("kafka").options(**options).option("subscribe", "iot-data-input").load()
        frame.write.format("noop").mode("overwrite").save()
        return time.monotonic() - began, lab.records(project)

    def from_full(project: Project, above: str, table: str) -> Callable[[], tuple[float, int]]:
        """Drain one table whose input is full already."""

        def run() -> tuple[float, int]:
            filled = lab.in_lake(project, "bench", fresh=True)
            lab.drain(filled, above)
            return lab.drain(filled, table)

        return run

    def chain(*tables: str) -> Callable[[], tuple[float, int]]:
        return lambda: lab.drain(lab.in_lake(project, "bench", fresh=True), *tables)

    rungs = {
        "kafka_to_noop": lambda: noop(options),
        "kafka_to_noop_large_polls": lambda: noop({**options, **kafka.FETCH}),
        "kafka_to_bronze": chain("bronze.iot_metrics"),
        "bronze_to_silver": from_full(project, "bronze.iot_metrics", "silver.cpu_metrics"),
        "bronze_to_silver_ungated": from_full(ungated, "bronze.iot_metrics", "silver.cpu_metrics"),
        "silver_to_gold": from_full(project, "silver.cpu_metrics", "gold.cpu_usage_5m"),
        "whole_chain": chain("gold.cpu_usage_5m"),
    }
    found = _rates(rungs)
    base = median(found["kafka_to_noop"])
    return {
        name: {"rows_per_second": round(median(runs)), "runs": runs, "ratio": round(median(runs) / base, 3)}
        for name, runs in found.items()
    }


def _rates(rungs: dict[str, Callable[[], tuple[float, int]]]) -> dict[str, list[int]]:
    """Each rung's rates; round after round, so that a machine that slows down does so for all of them."""
    rates: dict[str, list[int]] = {name: [] for name in rungs}
    for repeat in range(1 + REPEATS):
        for name, rung in rungs.items():
            seconds, rows = rung()
            if repeat:
                rates[name].append(round(rows / seconds))
    return rates
