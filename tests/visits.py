"""A small project of four derived tables whose bronze table the test writes: visits of users."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.flows.context import Context
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.testing import Project, Record, Rows

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


class Visits(Project):
    """The project, with files of a test's own; Kafka can't be asked how far its topics go."""

    def __init__(self, root: Path, spark: SparkSession, files: Mapping[str, str] | None = None) -> None:
        super().__init__({**FILES, **(files or {})}, root, spark=spark)
        self.sent = 0
        self.columns = self.tables[RAW].stored
        self.target(RAW)

    @property
    def bronze(self) -> Target:
        return self.target(RAW)

    def visit(self, draw: random.Random, count: int = 40) -> None:
        """One commit of bronze: a few of its records are malformed, and a few late."""
        records = []
        for _ in range(count):
            late = draw.choice([0, 0, 0, 0, 300])
            fields = {"user": draw.choice("abc"), "n": draw.randrange(-2, 9), "at": EPOCH + self.sent - late}
            value = b"{" if draw.random() < 0.1 else json.dumps(fields)
            records.append(Record(value, offset=self.sent))
            self.sent += 1
        self.send("raw", records)

    def once(self) -> Context:
        """A new run, which ends when all is drained."""
        return replace(self.restart().context, once=True)

    def drain(self, *names: str) -> None:
        """Run the derived tables until nothing is left."""
        self.restart().end(*(names or DERIVED), close=False)

    def rows(self, name: str, columns: str = "COLUMNS(c -> c <> 'quarantined_at')") -> Rows:
        return super().rows(name, columns)

    def everything(self) -> dict[str, Rows]:
        names, places = (
            [*DERIVED, "quarantine.silver_visits", f"{ENDED}_late", f"{ENDED}__state"],
            self.lake.places(),
        )
        return {name: self.rows(name) for name in names if name in places}

    def _new(self) -> Context:
        return replace(super()._new(), ends=None)


def of_new_lake(case: Visits) -> dict[str, Rows]:
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
