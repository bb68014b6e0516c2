"""The same records in other orders and other batches give the same gold, row for row."""

from __future__ import annotations

import random
from io import StringIO
from itertools import islice
from pathlib import Path

from harness import BRONZE, GOLD, SEED, SILVER, Project, assert_gold, gold
from pyspark.sql import SparkSession

from headwater import project as projects
from headwater.broker import create_topics
from headwater.produce import Record, Topic, run_producer
from headwater.progress import Board
from headwater.run import Options, Run

COUNT = 12_000
LATENESS = 100  # records: 10 s of event time


def test_gold_does_not_depend_on_cuts_and_orders(tmp_path: Path, broker: str, spark: SparkSession) -> None:
    draw = random.Random(SEED)
    tables = []
    for number in range(3):
        settings = {"kafka": {"bootstrap.servers": broker}}
        project = Project(tmp_path / f"order-{number}", **settings)
        project.note(COUNT)
        assert sum(not project.generator.kept(r.fault) for r in project.records) > 50
        name = f"cuts-{number}"
        own_topics(project, name)
        create_topics({"bootstrap.servers": broker}, [Topic(name, partitions=4)])
        sent = iter([r._replace(topic=name) for r in shuffled(project.records, number, draw)])
        batches = {BRONZE: 0, SILVER: 0, GOLD: 0}
        cuts = sorted(draw.sample(range(1, COUNT), number))
        for start, stop in zip([0, *cuts], [*cuts, COUNT], strict=True):
            run_producer(islice(sent, stop - start), client={"bootstrap.servers": broker})
            bound = draw.randrange(400, 3_000)
            project.configure(**settings, max_rows_per_batch=bound)
            board = Board(notices=StringIO())
            code = Run(projects.load(project.root, "local"), Options(once=True), board)()
            assert code == 0, {name: flow.error for name, flow in board.flows.items() if flow.error}
            for flow in batches:
                batches[flow] += board.batches(flow)
        print(f"order {number}: cut at {cuts}, {batches} batches")
        assert min(batches.values()) > 3
        tables.append(gold(project))
    oracle = {tuple(k): tuple(v) for k, v in project.generator.cpu_usage_5m(project.records).items()}
    for table in tables:
        assert_gold(oracle, table)
        assert_gold(tables[0], table)


def shuffled(records: list[Record], number: int, draw: random.Random) -> list[Record]:
    """The records as they are, or each moved by less than the lateness."""
    if number == 0:
        return records
    at = [place + draw.uniform(0, LATENESS) for place in range(len(records))]
    return [records[place] for place in sorted(range(len(records)), key=at.__getitem__)]


def own_topics(project: Project, name: str) -> None:
    """Let the project read from and publish to topics that no other project of this broker has."""
    for file, topics in {
        "bronze/iot.py": ("iot-data-input",),
        "silver/iot.py": ("iot-filtered-alert",),
        "gold/cpu_usage_5m.sql": ("iot-avg-output",),
    }.items():
        path = project.root / file
        text = path.read_text()
        for topic in topics:
            assert topic in text
            text = text.replace(topic, name if topic == "iot-data-input" else f"{topic}-{name}")
        path.write_text(text)
