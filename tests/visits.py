"""A small project of four derived tables whose bronze table the test writes: visits of users."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater import query
from headwater.common.progress import Board
from headwater.flows.context import Context
from headwater.flows.declared import flow_of
from headwater.operations.rebuild import Rebuilt, rebuild
from headwater.planner import analysis
from headwater.planner.changes import accept
from headwater.project.bronze import BRONZE
from headwater.project.load import Project, load_project
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.target import Identity, Target

RAW, VISITS, COUNTS, TOP, ENDED = "bronze.raw", "silver.visits", "gold.counts", "gold.top", "gold.ended"
EPOCH = 1_760_000_400
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/visits.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("user STRING, n BIGINT, at BIGINT"))
def visits(raw):
    """One row per visit."""
    return raw.where("n >= 0").withColumn("event_time", F.timestamp_seconds("at"))
''',
    "gold/counts.sql": """CREATE STREAMING TABLE gold.counts AS
        SELECT user, count(*) AS visits, sum(n) AS total FROM STREAM silver.visits GROUP BY user""",
    "gold/top.sql": """CREATE MATERIALIZED VIEW gold.top TBLPROPERTIES ('headwater.keys' = 'user') AS
        SELECT user, total, rank() OVER (ORDER BY total DESC, user) AS place FROM gold.counts""",
    "gold/ended.sql": """CREATE STREAMING TABLE gold.ended TBLPROPERTIES ('headwater.emit' = 'final') AS
        SELECT window.start AS since, user, count(*) AS visits
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '1 minute'), user""",
}
DERIVED = (VISITS, COUNTS, TOP, ENDED)


class Case:
    """A project whose bronze table the test writes."""

    def __init__(self, root: Path, spark: SparkSession, **files: str) -> None:
        self.root, self.spark = root, spark
        self.write(**{**FILES, **files})
        self.sent = 0
        project = self.project()
        raw = analysis.analyse(spark, project)[RAW]
        accept(project, self.lake, RAW, raw)
        self.columns = raw.stored
        self.bronze = Target(self.lake.create(RAW, self.columns, properties={}))

    def copied(self, root: Path) -> Case:
        """A copy of the project and of all that it holds."""
        other = copy.copy(self)
        other.root = root
        shutil.copytree(self.root, root)
        other.bronze = Target(other.lake.place(RAW))
        return other

    @property
    def lake(self) -> Lake:
        return Lake(self.project().conf.lake)

    def project(self) -> Project:
        return load_project(self.root)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(**{name: text.replace(old, new)})

    def send(self, draw: random.Random, count: int = 40) -> None:
        """One commit of bronze: a few of its records are malformed, and a few late."""
        rows = []
        for _ in range(count):
            late = draw.choice([0, 0, 0, 0, 300])
            fields = {"user": draw.choice("abc"), "n": draw.randrange(-2, 9), "at": EPOCH + self.sent - late}
            value = b"{" if draw.random() < 0.1 else json.dumps(fields).encode()
            at = datetime.now(UTC)
            rows.append(
                {
                    **dict.fromkeys(BRONZE.fieldNames()),
                    **{
                        "value": value,
                        "topic": "raw",
                        "partition": 0,
                        "offset": self.sent,
                        "cluster": "main",
                    },
                    **{"timestamp": at, "ingested_at": at},
                }
            )
            self.sent += 1
        identity = Identity(RAW, 1, self.bronze.last(RAW) + 1, {"raw": {"0": self.sent}})
        files = self.bronze.write(pa.Table.from_pylist(rows, self.columns), f"{identity.sequence:012d}")
        self.bronze.append(files, identity)

    def context(self) -> Context:
        project = self.project()
        tables = analysis.analyse(self.spark, project)
        board = Board(notices=StringIO())
        return Context(project, tables, self.spark, self.lake, board)

    def drain(self, *names: str) -> None:
        """Run the derived tables until nothing is left."""
        context = self.context()
        context.heads.end(RAW)
        for name in names or DERIVED:
            flow_of(context, name).run()
            context.heads.end(name)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = query.run(f"SELECT * FROM {table}", project=self.root)
        return _sorted(found.columns, found.rows)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        names = [*DERIVED, "quarantine.silver_visits", f"{ENDED}_late", f"{ENDED}__state"]
        places = self.lake.places()
        with query.connect(self.root) as connection:
            held = {name: connection.sql(f"SELECT * FROM {name}") for name in names if name in places}
            return {name: _sorted(found.columns, found.fetchall()) for name, found in held.items()}

    def rebuild(self, *tables: str, **options: Any) -> Rebuilt:
        return rebuild(self.project(), tables, notices=Board(notices=StringIO()), **options)


def _sorted(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    keep = [at for at, name in enumerate(columns) if name != "quarantined_at"]
    return sorted((tuple(row[at] for at in keep) for row in rows), key=repr)


def of_new_lake(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """What the definitions give that have never been others."""
    live = case.root / ".headwater" / "lake"
    aside = live.with_name("aside")
    live.rename(aside)
    try:
        lake = Lake(live)
        place = lake.create(RAW, case.columns, properties={})
        for path in (aside / "bronze" / "raw" / "g0001").iterdir():
            if path.is_dir() and path.name != "_delta_log":
                (place.path / path.name).symlink_to(path)
        target = Target(place)
        before = Lake(aside).places()[RAW].path
        came = log.snapshot(before, log.head(before))  # in the order in which their rows did
        files = [str(Path(*Path(file.path).parts[-2:])) for file in came]
        target.append(files, Identity(RAW, 1, 0, {"raw": {"0": case.sent}}))
        case.drain()
        return case.everything()
    finally:
        shutil.rmtree(live)
        aside.rename(live)
