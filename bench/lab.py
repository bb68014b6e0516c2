"""What the benchmarks share: a project of their own beside a broker of their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from confluent_kafka.admin import AdminClient

from headwater.common.progress import Board
from headwater.common.report import BatchReport
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics, list_topics
from headwater.connectors.produce import (
    DEFAULT_START,
    DEFAULT_STEP,
    Faults,
    load_generator,
    run_producer,
    stepped,
)
from headwater.project.load import Project
from headwater.project.load import load_project as load
from headwater.project.paths import engine_folder
from headwater.run.supervisor import Options, Run
from headwater.runtime import jvm

ROOT = Path(__file__).parent.parent
NONE = Faults()


def prepare(*more: str, home: str = "bench") -> Path:
    """A copy of the reference project whose gold also keeps each window's newest event; its folder.

    Args:
        more: folders beside this file whose definitions it has, too.
        home: the folder's name.
    """
    path = engine_folder(ROOT) / home
    for layer in ("bronze", "silver", "gold", "quality", "generators", "conf"):
        shutil.rmtree(path / layer, ignore_errors=True)
        shutil.copytree(ROOT / layer, path / layer)
    for folder in ("project", *more):
        shutil.copytree(Path(__file__).parent / folder, path, dirs_exist_ok=True)
    with (path / "conf" / "local.yaml").open("a") as conf:
        conf.write("broker: {port: 0}\n")
    shutil.rmtree(path / ".headwater" / "lake", ignore_errors=True)
    return path


def preload(project: Project, count: int) -> None:
    """Have exactly `count` records in the topic: one that has as many already is left as it is."""
    if records(project) != count:
        refill(project, "iot", count)


def refill(project: Project, system: str, count: int, faults: Faults = NONE) -> None:
    """Empty the topics of a system, and send the first `count` records of its generator."""
    client = kafka.client_options(project.conf, kafka.ensure_running(project.root, project.conf))
    generator = load_generator(project.root, system)
    known = {topic.name for topic in list_topics(client)}
    names = [topic.name for topic in generator.topics if topic.name in known]
    admin = AdminClient(client)  # held: without it what it was asked for is given up
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result()
    create_topics(client, generator.topics)
    events = generator.records(seed=1, faults=faults, clock=stepped(DEFAULT_START, DEFAULT_STEP))
    run_producer(islice(events, count), client=client, count=count)


def records(project: Project) -> int:
    """How many records the topic holds."""
    client = kafka.client_options(project.conf, kafka.ensure_running(project.root, project.conf))
    return next((t.end for t in list_topics(client) if t.name == "iot-data-input"), 0)


def in_lake(project: Project, lake: str, *, fresh: bool = False) -> Project:
    """The same project over another lake, which is emptied if it shall be `fresh`."""
    path = project.root / ".headwater" / lake
    if fresh:
        shutil.rmtree(path, ignore_errors=True)
    return replace(project, conf=project.conf.model_copy(update={"lake": path}), alerts={}, sinks={})


def drain(project: Project, *tables: str) -> tuple[float, int]:
    """Run the tables until they are drained: seconds of the last table's batches, and its rows."""
    board = Board()
    code = Run(project, Options(tables=tables, once=True), board)()
    if code:
        raise SystemExit(f"a flow failed: {board.failed()}")
    reports = list(board.flows[tables[-1]].recent)
    everything = [report for flow in board.flows.values() for report in flow.recent]
    return span(everything, reports), sum(report.rows_in for report in reports)


def span(reports: Iterable[BatchReport], last: Iterable[BatchReport] | None = None) -> float:
    """Seconds from the beginning of the first batch to the end of the last one, or of the last of some."""
    reports = list(reports)
    return max(report.at for report in last or reports) - min(report.began for report in reports)


if __name__ == "__main__":
    jvm.begin("2g")  # as the command line does, beside what it imports and loads
    drain(in_lake(load(Path(sys.argv[1])), "cold", fresh=True), sys.argv[2])

__all__ = ["drain", "in_lake", "load", "preload", "prepare", "records", "refill", "span"]
